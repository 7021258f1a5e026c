//go:build cgo

package ibv

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/probe"
)

// The distribution may have any version.
func TestSystemLibraryIsUsedOrRefusedWithAReason(t *testing.T) {
	lib, err := Load(Options{})
	if errors.Is(err, probe.ErrNotSupported) {
		need.Missing(t, "libibverbs", err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	defer lib.Close()
	if !lib.has("ibv_open_device") || lib.has("ibv_nonsense") || !filepath.IsAbs(lib.path()) {
		t.Errorf("the library is %q, with ibv_open_device %v", lib.path(), lib.has("ibv_open_device"))
	}
	list, err := lib.Devices()
	if err != nil && !errors.Is(err, probe.ErrNotSupported) {
		t.Errorf("the device list: %v", err)
	}
	t.Log(lib.path(), list, err)
	if _, err := lib.Open("nosuch0"); !errors.Is(err, ErrNoDevice) && !errors.Is(err, probe.ErrNotSupported) {
		t.Errorf("opening a device that is not there: %v", err)
	}
	if err := errors.Join(lib.Close(), lib.Close()); err != nil {
		t.Error(err)
	}
	if _, err := lib.Devices(); !errors.Is(err, ErrClosed) || lib.has("ibv_open_device") || lib.path() != "" {
		t.Errorf("a closed library: %v", err)
	}
}

// Root must also be refused a file that other users can write.
func TestLoadRefusesForeignAndUntrustedFiles(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.so")
	if err := os.WriteFile(text, []byte("no library\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "other.so")
	if err := os.WriteFile(other, []byte("no library\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(other, 0o666); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo.so")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, path string
		is         error
		says       string
	}{
		{"a FIFO without a writer", fifo, nil, "not a regular file"},
		{"a directory", dir, nil, "not a regular file"},
		{"absent", filepath.Join(dir, "absent.so"), probe.ErrNotSupported, "absent.so"},
		{"no ELF", text, probe.ErrNotSupported, "text.so"},
		{"another library", stubLibrary(t, ""), probe.ErrNotSupported, "ibv_get_device_list"},
		{"relative", "libibverbs.so.1", nil, "must be absolute"},
		{"writable by all", other, ErrUntrusted, "chmod go-w"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if errors.Is(c.is, ErrUntrusted) {
				need.Root(t)
			}
			lib, err := Load(Options{Library: c.path})
			if err == nil {
				lib.Close()
				t.Fatal("it was loaded")
			}
			if c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %v with %q", err, c.is, c.says)
			}
			var u *probe.UnsupportedError
			if errors.As(err, &u) && (u.Object != "libibverbs" || u.Fix == "") {
				t.Errorf("%+v does not name the library, or no fix", u)
			}
		})
	}
}

// For a named path the next step is another path, and a package otherwise.
func TestFixIsAPackageOrAnotherPath(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent.so")
	for _, c := range []struct {
		object, feature string
		load            func(path string) error
		library         shared
	}{
		{"libibverbs", "RDMA verbs", func(p string) error { _, err := loadVerbs(p); return err }, libVerbs},
		{"libmlx5", "a feature", func(p string) error { _, err := loadMLX5("a feature", Options{MLX5: p}); return err }, libMLX5},
		{"libefa", featureExternal, func(p string) error { _, err := loadEFA(Options{EFA: p}, featureExternal); return err }, libEFA},
		{"libefa", featureSRD, func(p string) error { _, err := loadEFA(Options{EFA: p}, featureSRD); return err }, libEFASRD},
	} {
		var u *probe.UnsupportedError
		if err := c.load(absent); !errors.As(err, &u) || u.Object != c.object || u.Feature != c.feature || !strings.Contains(u.Reason, absent) ||
			!strings.Contains(u.Fix, c.library.soname) || strings.Contains(u.Fix, "install") {
			t.Errorf("%s at %s: %v: %+v", c.object, absent, err, u)
		}
		if path, fix, err := c.library.at(""); path != c.library.soname || !strings.HasPrefix(fix, "install ") || err != nil {
			t.Errorf("%s as the loader finds it: %q, %q, %v", c.object, path, fix, err)
		}
		if err := c.load("relative.so"); err == nil || errors.Is(err, probe.ErrNotSupported) || !strings.Contains(err.Error(), "absolute") {
			t.Errorf("%s at a relative path: %v", c.object, err)
		}
	}
}

// stubLibrary makes a library with those functions in C: no release lacks a symbol that the binding needs.
func stubLibrary(t *testing.T, functions string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stub.so")
	buildStub(t, path, functions)
	return path
}

// buildStub makes the library at path.
func buildStub(t *testing.T, path, functions string, more ...string) {
	t.Helper()
	need.Tool(t, "gcc")
	source := filepath.Join(t.TempDir(), "stub.c")
	if err := os.WriteFile(source, []byte(functions), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-shared", "-fPIC", "-Wl,-soname," + filepath.Base(path), "-o", path, source}, more...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// mlx5OfAnotherRelease makes a libmlx5.so.1 that wants the private symbols of a libibverbs that no host has, and returns
// its directory.
func mlx5OfAnotherRelease(t *testing.T) string {
	t.Helper()
	dir, other := t.TempDir(), t.TempDir()
	versions := filepath.Join(other, "versions")
	if err := os.WriteFile(versions, []byte("IBVERBS_PRIVATE_99 { global: *; };\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	libibverbs := filepath.Join(other, "libibverbs.so.1")
	buildStub(t, libibverbs, "void verbs_register_driver_99(void) {}\n", "-Wl,--version-script="+versions)
	buildStub(t, filepath.Join(dir, "libmlx5.so.1"),
		"void verbs_register_driver_99(void);\nvoid start(void) { verbs_register_driver_99(); }\n", libibverbs)
	return dir
}

// mapped returns the path of a library that this process has loaded.
func mapped(t *testing.T, soname string) string {
	t.Helper()
	for line := range strings.Lines(string(must(os.ReadFile("/proc/self/maps"))(t))) {
		if f := strings.Fields(line); strings.HasPrefix(filepath.Base(f[len(f)-1]), soname) {
			return f[len(f)-1]
		}
	}
	t.Fatalf("%s is not loaded", soname)
	return ""
}

// The system's libmlx5 fits the system's libibverbs alone. If the options name another libibverbs,
// installing a package does not help, and the next step must be the missing option.
func TestFixBesideAnotherLibibverbsIsTheMissingOption(t *testing.T) {
	const alone = "FLOWTALLY_TEST_ALONE" // the libibverbs and the libmlx5 of one release, in a process where the loader finds another libmlx5
	if os.Getenv(alone) == "" {
		uverbs.Need(t)
		lib, mlx5 := must(Load(Options{}))(t), must(loadMLX5("a feature", Options{}))(t)
		cmd := exec.CommandContext(t.Context(), must(os.Executable())(t), "-test.v", "-test.run=^TestFixBesideAnotherLibibverbsIsTheMissingOption$")
		cmd.Env = append(os.Environ(), alone+"="+lib.path()+":"+mapped(t, "libmlx5.so.1"), "LD_LIBRARY_PATH="+mlx5OfAnotherRelease(t))
		mlx5.unload()
		out, err := cmd.CombinedOutput()
		if t.Logf("%s", out); err != nil {
			t.Errorf("in a process of its own: %v", err)
		}
		if err := lib.Close(); err != nil {
			t.Error(err)
		}
		return
	}
	libibverbs, libmlx5, _ := strings.Cut(os.Getenv(alone), ":")
	lib := must(Load(Options{Library: libibverbs}))(t)
	var u *probe.UnsupportedError
	if _, err := loadMLX5("a feature", lib.opts); !errors.As(err, &u) {
		t.Fatalf("the libmlx5 of another release: %v", err)
	}
	t.Logf("%s; %s", u.Reason, u.Fix)
	if lab.Step(t, u.Fix, "set rdma.mlx5 to the …"); !strings.Contains(u.Fix, libibverbs) || strings.Contains(u.Fix, "install") {
		t.Errorf("the next step is %q", u.Fix)
	}
	lib.opts.MLX5 = libmlx5 // take the step
	mlx5, err := loadMLX5("a feature", lib.opts)
	if err != nil {
		t.Fatal(err)
	}
	mlx5.unload()
	if fix := lib.opts.fix("rdma.efa", libEFA.soname, "install it"); !strings.HasPrefix(fix, "set rdma.efa to the libefa.so.1 ") {
		t.Errorf("the next step for EFA is %q", fix)
	}
	if err := lib.Close(); err != nil {
		t.Error(err)
	}
}

// Completion counters came with IBVERBS_1.18. rdma-core 44 has all other symbols.
func TestOldLibraryLacksOnlyTheCompletionCounters(t *testing.T) {
	shim, wire := softLibs(t).Shim, newWire(t)
	for path, want := range map[string]bool{shim: true, "": false} {
		b := newLibrary(t, wire, path)
		got := b.lib.has("ibv_create_comp_cntr")
		if path == "" && got {
			t.Skip("the host's rdma-core has completion counters")
		}
		if path != "" && b.lib.path() != path {
			t.Errorf("asked for %s, got %s", path, b.lib.path())
		}
		if got != want {
			t.Errorf("%q has completion counters: %v", path, got)
		}
		b.open()
		caps, err := b.ctx.QueryCompCntrCaps()
		if want && (err != nil || caps.MaxValue == 0 || caps.MaxCounters == 0) {
			t.Errorf("capabilities %+v, %v", caps, err)
		}
		if !want && !errors.Is(err, probe.ErrNotSupported) {
			t.Errorf("without the symbol: %v", err)
		}
		b.check(b.ctx.Close())
		b.check(b.lib.Close())
	}
}
