package include

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/shm"
)

// prefix is where installTree installs, below the root that it returns: not the default,
// so that a path that ignores PREFIX shows.
const prefix = "/opt/flowtally"

// soname is the name of the library that programs hold.
const soname = "libflowtally.so.0"

// makeTarget runs make in the root of the repository.
func makeTarget(t *testing.T, args ...string) {
	t.Helper()
	run(t, "make", append([]string{"-C", "../..", "--no-print-directory", "PREFIX=" + prefix}, args...)...)
}

// installTree installs the files of make build below a new directory, and returns it with the arguments
// of make.
func installTree(t *testing.T) (root string, args []string) {
	t.Helper()
	need.Tool(t, "make", "cc", "nm")
	bin := os.Getenv("FLOWTALLY_BIN")
	if bin == "" {
		need.Tool(t, "go")
		bin = t.TempDir()
		makeTarget(t, "build", "BIN="+bin)
	}
	root = t.TempDir()
	args = []string{"BIN=" + bin, "DESTDIR=" + root}
	makeTarget(t, append(args, "install")...)
	return root, args
}

// files returns the paths of the files below root.
func files(t *testing.T, root string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			paths = append(paths, strings.TrimPrefix(path, root))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(paths)
	return paths
}

// pkgConfig returns the flags that pkg-config prints for the installed tree.
func pkgConfig(t *testing.T, root string, args ...string) []string {
	t.Helper()
	need.Tool(t, "pkg-config")
	cmd := exec.CommandContext(t.Context(), "pkg-config", append(args, "flowtally")...)
	cmd.Env = append(os.Environ(), "PKG_CONFIG_LIBDIR="+root+prefix+"/lib/pkgconfig", "PKG_CONFIG_SYSROOT_DIR="+root)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return strings.Fields(string(out))
}

// make install installs each header, the library under its three names, flowtally.pc and the programs,
// below PREFIX. Programs in C11, C17 and C++17 build against that tree and nothing else, from the
// headers alone and linked to the library, and read the same values as Go. Python reads the same by the
// library. make uninstall removes all but a configuration that was edited.
func TestInstalledFilesBuildProgramsAndUninstall(t *testing.T) {
	root, args := installTree(t)
	t.Run("files", func(t *testing.T) { testInstalledFiles(t, root) })
	path, w := newMirror(t, shm.Options{Counters: 256, LatencyCounters: 8, History: 32, CoolDown: time.Millisecond})
	furnish(t, w)
	want := dumpGo(t, path)
	t.Run("programs", func(t *testing.T) { testProgramsOfTree(t, root, path, want) })
	t.Run("python", func(t *testing.T) { testPythonOfTree(t, root, path, want) })
	t.Run("uninstall", func(t *testing.T) { testUninstall(t, root, args) })
}

func testInstalledFiles(t *testing.T, root string) {
	t.Helper()
	want := []string{"/etc/flowtally.yaml"}
	version := pkgConfig(t, root, "--modversion")[0]
	library := "lib/libflowtally.so." + version
	for _, name := range []string{
		"bin/flowtally", "bin/flowtally-plugin",
		library, "lib/" + soname, "lib/libflowtally.so", "lib/pkgconfig/flowtally.pc",
		"lib/systemd/system/flowtally.service", "lib/systemd/system/flowtally-export.service", "lib/tmpfiles.d/flowtally.conf",
		"share/bash-completion/completions/flowtally", "share/fish/vendor_completions.d/flowtally.fish", "share/zsh/site-functions/_flowtally",
		"share/doc/flowtally/copyright", "share/doc/flowtally/queue-pairs-efa.yaml", "share/doc/flowtally/queue-pairs.yaml", "share/doc/flowtally/rdma.conf", "share/doc/flowtally/rdma.yaml",
	} {
		want = append(want, prefix+"/"+name)
	}
	headers, err := filepath.Glob("flowtally*.h")
	if err != nil || len(headers) < 15 {
		t.Fatalf("headers: %v, %v", headers, err)
	}
	for _, h := range headers {
		want = append(want, prefix+"/include/flowtally/"+h)
	}
	documents, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(documents) < 15 {
		t.Fatalf("documents: %v, %v", documents, err)
	}
	for _, d := range documents {
		want = append(want, prefix+"/share/doc/flowtally/docs/"+filepath.Base(d))
	}
	// A page for each command: TestEachCommandHasAManPageWithItsFlags compares them with the commands.
	pages, err := filepath.Glob(root + prefix + "/share/man/man[158]/flowtally*.[158].gz")
	if err != nil || len(pages) < 20 {
		t.Fatalf("man pages: %v, %v", pages, err)
	}
	for _, page := range pages {
		want = append(want, strings.TrimPrefix(page, root))
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, files(t, root)); diff != "" {
		t.Errorf("to be installed -, installed +:\n%s", diff)
	}
	for _, path := range files(t, root) {
		st, err := os.Stat(root + path)
		if err != nil {
			t.Errorf("a link that leads nowhere: %v", err)
			continue
		}
		mode := os.FileMode(0o644)
		if strings.HasPrefix(path, prefix+"/bin/") {
			mode = 0o755
		}
		if st.Mode() != mode || st.Size() == 0 {
			t.Errorf("%s has mode %o and %d bytes, not mode %o", path, st.Mode(), st.Size(), mode)
		}
	}
	if diff := cmp.Diff(exported(t), symbols(t, "-D", filepath.Join(root, prefix, library))); diff != "" {
		t.Errorf("the headers declare -, the installed library exports +:\n%s", diff)
	}
	unit, err := os.ReadFile(root + prefix + "/lib/systemd/system/flowtally.service")
	if err != nil || !strings.Contains(string(unit), "\nExecStart="+prefix+"/bin/flowtally run --config /etc/flowtally.yaml\n") {
		t.Errorf("the unit does not start %s/bin/flowtally: %v", prefix, err)
	}
}

func testUninstall(t *testing.T, root string, args []string) {
	t.Helper()
	// A second time, over a configuration that was edited.
	const edited = "interfaces: [lo]\n"
	if err := os.WriteFile(root+"/etc/flowtally.yaml", []byte(edited), 0o644); err != nil {
		t.Fatal(err)
	}
	makeTarget(t, append(args, "install")...)
	makeTarget(t, append(args, "uninstall")...)
	if diff := cmp.Diff([]string{"/etc/flowtally.yaml"}, files(t, root)); diff != "" {
		t.Errorf("to be left -, left +:\n%s", diff)
	}
	if text, err := os.ReadFile(root + "/etc/flowtally.yaml"); string(text) != edited {
		t.Errorf("the edited configuration became %q, %v", text, err)
	}
	for _, dir := range []string{"include", "share/doc"} {
		if _, err := os.Stat(filepath.Join(root, prefix, dir, "flowtally")); err == nil {
			t.Errorf("the directory %s/flowtally is left", dir)
		}
	}
}

func testProgramsOfTree(t *testing.T, root, path, want string) {
	t.Helper()
	source, err := filepath.Abs("testdata/dump.c")
	if err != nil {
		t.Fatal(err)
	}
	warnings := slices.DeleteFunc(slices.Clone(strict), func(s string) bool { return strings.HasPrefix(s, "-I") })
	headers := pkgConfig(t, root, "--cflags")
	library := append(pkgConfig(t, root, "--cflags", "--libs"), "-Wl,-rpath,"+root+prefix+"/lib")
	for _, language := range [][]string{{"cc", "-std=c11"}, {"cc", "-std=c17"}, {"c++", "-xc++", "-std=c++17"}} {
		for _, link := range []struct {
			name   string
			flags  []string
			needed []string
		}{{"headers", headers, nil}, {"library", library, []string{soname}}} {
			t.Run(strings.TrimPrefix(language[len(language)-1], "-std=")+" "+link.name, func(t *testing.T) {
				need.Tool(t, language[0])
				bin := filepath.Join(t.TempDir(), "dump")
				args := slices.Concat(language[1:], warnings, []string{"-O2", "-o", bin, source}, link.flags)
				cmd := exec.CommandContext(t.Context(), language[0], args...)
				cmd.Dir = t.TempDir() // no header of the repository is beside it
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
				}
				if diff := cmp.Diff(want, run(t, bin, path)); diff != "" {
					t.Errorf("Go reads -, the program reads +:\n%s", diff)
				}
				file, err := elf.Open(bin)
				if err != nil {
					t.Fatal(err)
				}
				defer file.Close()
				needed, err := file.ImportedLibraries()
				needed = slices.DeleteFunc(needed, func(s string) bool { return !strings.HasPrefix(s, "libflowtally") })
				if err != nil || !slices.Equal(needed, link.needed) {
					t.Errorf("the program needs %q, not %q: %v", needed, link.needed, err)
				}
			})
		}
	}
}

func testPythonOfTree(t *testing.T, root, path, want string) {
	t.Helper()
	need.Tool(t, "python3")
	args := []string{"testdata/library.py", root + prefix + "/lib/" + soname, path}
	var loads strings.Builder
	for line := range strings.Lines(want) {
		switch f := strings.Split(line, "\t"); f[0] {
		case "entry":
			args = append(args, f[3]) // the name
		case "load":
			loads.WriteString(line)
		}
	}
	if len(args) < 100 {
		t.Fatalf("only %d counters", len(args))
	}
	if diff := cmp.Diff(loads.String(), run(t, "python3", args...)); diff != "" {
		t.Errorf("Go reads -, Python reads +:\n%s", diff)
	}
}
