//go:build vm

package vm

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab/archive"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// limit of one machine from its start. It needs some tens of seconds where it has a CPU for
// itself, and this is for machines that hang, not for busy ones.
const limit = 15 * time.Minute

// binDir is where the programs inside are, ours and others'.
const binDir = "/usr/bin"

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(built) // "" is nothing
	os.Exit(code)
}

var built string // output of workshop; "" when nothing was built

// workshop is a directory with the first process of every machine in it, linked statically.
var workshop = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "flowtally-vm-")
	if err != nil {
		return "", err
	}
	built = dir
	return dir, goTool("0", "build", "-ldflags=-s -w", "-o", dir+"/init", "./internal/lab/vm/init")
})

// programs builds the project's own, as they are shipped with cgo.
var programs = sync.OnceValue(func() error {
	dir, err := workshop()
	if err != nil {
		return err
	}
	return goTool("1", "build", "-ldflags=-s -w", "-o", dir+"/", "./cmd/flowtally", "./cmd/flowtally-plugin")
})

func goTool(cgo string, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	cmd.Dir = filepath.Join("..", "..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// boot is a machine in the making.
type boot struct {
	cache  archive.Cache
	kernel *Kernel
	image  *Image
	script Script
	roots  []string // where shared libraries come from
	bin    string
	cpus   int // 0: the default of Machine
}

// A line is a kernel that machines run.
type line struct {
	meta   string   // the metapackage that depends on it
	suites []string // of which the one with the newest version has it; none: the suite of this machine
	first  []string // modules that others of this line need, and do not name
	long   bool     // machines run it in the long form only
}

var (
	linux61  = line{meta: "linux-image-cloud-amd64", first: []string{"crc32c_generic", "ghash_generic", "ansi_cprng"}} // the oldest supported kernel, in the flavour for clouds, the smallest
	linux612 = line{meta: "linux-image-6.12-amd64", first: []string{"crc32c_generic", "ghash_generic", "crypto_null"}, long: true}
	newest   = line{meta: "linux-image-cloud-amd64", suites: []string{"trixie-backports", "sid"}, first: []string{"crypto_null"}, long: true}
)

// unpack fetches the newest kernel of the line.
func (l line) unpack(t *testing.T, cache archive.Cache) []string {
	t.Helper()
	best, highest := cache, ""
	for _, suite := range l.suites {
		s := patiently(t, suite, cache.Suite)
		version := patiently(t, l.meta, s.VersionOf)
		newer, err := archive.Older(t.Context(), highest, version)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s of %s: version %s", l.meta, suite, version)
		if newer {
			best, highest = s, version
		}
	}
	return patiently(t, l.meta, best.KernelOf)
}

// newBoot fetches a kernel, packs the first process and loads the modules named. The short form has the oldest kernel
// alone: the kernel of the host is a new one.
func newBoot(t *testing.T, kernel line, modules ...string) *boot {
	t.Helper()
	if kernel.long {
		onlyLong(t)
	}
	need.Tool(t, QEMU, "apt-get", "apt-cache", "dpkg-deb", "xz", "go", "cc")
	b := &boot{image: NewImage()}
	dir, err := archive.DefaultDir()
	if err != nil {
		t.Fatal(err)
	}
	b.cache = archive.Cache{Dir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if b.kernel, err = OpenKernel(kernel.unpack(t, b.cache)...); err != nil {
		t.Fatal(err)
	}
	loaded, err := b.kernel.Modules(append(slices.Clone(kernel.first), modules...)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range loaded {
		path := "/lib/modules/" + m.Name + ".ko"
		b.image.Bytes(path, m.Data, 0o644)
		b.script.Modules = append(b.script.Modules, path)
	}
	if b.bin, err = workshop(); err != nil {
		t.Fatal(err)
	}
	b.image.File(filepath.Join(b.bin, "init"), "/init", 0o755)
	b.roots = []string{"/"}
	return b
}

// onlyLong leaves a test to the long form.
func onlyLong(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("left to the long form, which .ci/nightly runs")
	}
}

func (b *boot) fetch(t *testing.T, pkg string) string {
	t.Helper()
	return patiently(t, pkg, b.cache.Package)
}

// patiently gets a package from an archive that may be unreachable for some minutes.
func patiently[T any](t *testing.T, name string, get func(context.Context, string) (T, error)) T {
	t.Helper()
	for _, pause := range []time.Duration{5 * time.Second, 20 * time.Second, time.Minute, 0} {
		got, err := get(t.Context(), name)
		if err == nil {
			return got
		}
		if pause == 0 {
			t.Fatal(err)
		}
		t.Logf("%v: once more in %v", err, pause)
		time.Sleep(pause)
	}
	panic("the last one ends the test")
}

// flowtally packs the project's programs.
func (b *boot) flowtally(t *testing.T) {
	t.Helper()
	if err := programs(); err != nil {
		t.Fatal(err)
	}
	b.program(t, filepath.Join(b.bin, "flowtally"))
	b.program(t, filepath.Join(b.bin, "flowtally-plugin"))
}

// program packs a program of this machine as binDir/NAME.
func (b *boot) program(t *testing.T, host string) {
	t.Helper()
	if err := b.image.Program(host, filepath.Join(binDir, filepath.Base(host)), b.roots...); err != nil {
		t.Fatal(err)
	}
}

// tests compiles the tests of a package of ours and makes a step of them.
func (b *boot) tests(t *testing.T, step, pkg, names string, env ...string) {
	t.Helper()
	b.step(step, b.compile(t, step, pkg, names), names, env...)
}

// compiled are the packages whose tests compile has linked, by the path of the program: several machines run the same.
var compiled = make(map[string]string)

// compile packs the tests of a package of ours, and returns the program's path in the machine.
func (b *boot) compile(t *testing.T, name, pkg, tests string) string {
	t.Helper()
	bin := filepath.Join(b.bin, name+".test")
	if compiled[bin] != pkg {
		if err := goTool("1", "test", "-c", "-tags=vm", "-ldflags=-s -w", "-o", bin, pkg); err != nil {
			t.Fatal(err)
		}
		compiled[bin] = pkg
	}
	// A test that is renamed or moved must not leave the list unnoticed.
	list, err := exec.CommandContext(t.Context(), bin, "-test.list=.").Output()
	if err != nil {
		t.Fatalf("listing the tests of %s: %v", pkg, err)
	}
	for name := range strings.SplitSeq(tests, "|") {
		if !regexp.MustCompile("(?m)^" + name + "$").Match(list) {
			t.Fatalf("%s has no test %s", pkg, name)
		}
	}
	b.program(t, bin)
	return filepath.Join(binDir, name+".test")
}

// step runs tests of a compiled package.
func (b *boot) step(name, bin, tests string, env ...string) {
	env = append(env, "FLOWTALLY_GUEST_BIN="+binDir)
	if !testing.Short() {
		env = append(env, "FLOWTALLY_GUEST_LONG=1") // for package guest: the CPUs are emulated, so -test.short is for all
	}
	b.script.Steps = append(b.script.Steps, Step{
		Name:    name,
		Dir:     "/tmp",
		Seconds: int(limit/time.Second) - 20,
		Env:     env,
		Args:    []string{bin, "-test.v", "-test.short", "-test.run=^(" + tests + ")$"},
	})
}

// run boots. The machine's files stay in the cache, of the last run.
func (b *boot) run(t *testing.T) *Result {
	t.Helper()
	res, _, err := b.runToItsEnd(t)
	if err != nil {
		if res != nil {
			for name, s := range res.Steps {
				t.Logf("%s, until then:\n%s%s", name, s.Stdout, s.Stderr)
			}
		}
		t.Fatal(err)
	}
	checkLog(t, res)
	return res
}

// runToItsEnd boots a machine that may crash, and returns its console too.
func (b *boot) runToItsEnd(t *testing.T) (res *Result, console string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	start := time.Now()
	dir := filepath.Join(b.cache.Dir, "last-run", t.Name())
	m := Machine{Kernel: b.kernel, Image: b.image, CPUs: b.cpus, Dir: dir}
	res, err = m.Run(ctx, b.script)
	if err != nil && res != nil && res.Release == "" && ctx.Err() == nil {
		// QEMU's emulation of a second CPU can run code that the kernel has just patched, and the kernel ends in int3.
		t.Logf("the kernel ended while it booted: it boots once more: %v", err)
		res, err = m.Run(ctx, b.script)
	}
	t.Logf("kernel %s: %v; console and events are in %s", b.kernel.Release, time.Since(start).Round(time.Millisecond), dir)
	text, e := os.ReadFile(filepath.Join(dir, "console.log"))
	if e != nil {
		t.Error(e)
	}
	return res, string(text), err
}
