package include

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/shm"
)

// run runs a program to its end and returns its output.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

var strict = []string{"-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror", "-I."}

// build compiles a program of testdata and returns its path.
func build(t *testing.T, program string, flags ...string) string {
	t.Helper()
	need.Tool(t, "cc")
	bin := filepath.Join(t.TempDir(), program)
	args := append([]string{"-std=c11", "-O2", "-g", "-o", bin, filepath.Join("testdata", program+".c")}, strict...)
	run(t, "cc", append(args, flags...)...)
	return bin
}

// The headers must compile without a warning as C11, C17 and C++17, with every compiler, and for
// arm64: in every program, and each alone, from a copy of the directory, before any header of the
// system and twice, complete and as declarations of the library.
func TestHeadersCompileClean(t *testing.T) {
	programs, err := filepath.Glob("testdata/*.c")
	if err != nil || len(programs) == 0 {
		t.Fatalf("programs: %v, %v", programs, err)
	}
	examples, err := filepath.Glob("../../examples/*/*.c")
	if err != nil || len(examples) == 0 {
		t.Fatalf("examples: %v, %v", examples, err)
	}
	programs = append(programs, examples...)
	single, late := alone(t, ""), alone(t, "#include <stdio.h>\n")
	// GCC finds some mistakes only while it optimizes. Clang finds all of them in the syntax, and so does GCC those that
	// depend on the standard: there no code is made of the programs.
	const optimized, syntax = "-O2", "-fsyntax-only"
	also := syntax // of compilers that optimize as cc does: they take minutes
	if os.Getenv("FLOWTALLY_STRESS") != "" {
		also = optimized
	}
	for _, tt := range []struct {
		name  string // of the compiler; more names are tried in turn
		other []string
		code  string // how far the programs are compiled
		args  []string
	}{
		{"cc", nil, optimized, []string{"-std=c11"}},
		{"cc", nil, syntax, []string{"-std=c17"}},
		{"c++", nil, also, []string{"-x", "c++", "-std=c++17"}},
		{"clang", []string{"clang-14"}, syntax, []string{"-std=c11"}},
		{"clang", []string{"clang-14"}, syntax, []string{"-std=c17"}},
		{"clang++", []string{"clang++-14"}, syntax, []string{"-x", "c++", "-std=c++17"}},
		{"aarch64-linux-gnu-gcc", nil, also, []string{"-std=c11"}},
	} {
		t.Run(tt.name+" "+tt.args[len(tt.args)-1], func(t *testing.T) {
			compiler := ""
			for _, name := range append([]string{tt.name}, tt.other...) {
				if _, err := exec.LookPath(name); err == nil {
					compiler = name
					break
				}
			}
			if compiler == "" {
				need.Missing(t, "tool:"+tt.name, "not on PATH")
			}
			for _, program := range programs {
				args := append(append([]string{}, tt.args...), strict...)
				run(t, compiler, append(args, tt.code, "-c", "-o", filepath.Join(t.TempDir(), "o"), program)...)
			}
			args := append(append([]string{"-fsyntax-only"}, tt.args...), strict...)
			run(t, compiler, append(args, single...)...)
			run(t, compiler, append(append(args, "-DFLOWTALLY_SHARED"), single...)...)
			// Behind a header of the system no header can ask for more than the compiler's default declares.
			args = append(append([]string{"-fsyntax-only"}, tt.args...), strict...)
			args = append(args, strings.Replace(tt.args[len(tt.args)-1], "-std=c", "-std=gnu", 1))
			run(t, compiler, append(args, late...)...)
		})
	}
}

// Most programs include headers of the system first. That must work with -std=gnu11, the default of the compilers, and with
// the library. With -std=c11 the system hides declarations that our headers need, and the compiler must print the remedy.
func TestHeadersCompileAfterSystemHeaders(t *testing.T) {
	need.Tool(t, "cc")
	program := filepath.Join(t.TempDir(), "late.c")
	text := "#include <stdio.h>\n#include <unistd.h>\n" +
		"#include \"flowtally.h\"\n#include \"flowtally_wait.h\"\n#include \"flowtally_device.h\"\nint main(void) { return 0; }\n"
	if err := os.WriteFile(program, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{
		{"-std=gnu11"}, {"-std=c11", "-D_GNU_SOURCE"}, {"-std=gnu11", "-DFLOWTALLY_SHARED"}, {"-std=c11", "-DFLOWTALLY_SHARED"},
	} {
		run(t, "cc", append(append(flags, strict...), "-fsyntax-only", program)...)
	}
	out, err := exec.CommandContext(t.Context(), "cc", "-std=c11", "-I.", "-fsyntax-only", program).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "compile with -std=gnu11") {
		t.Errorf("-std=c11: %v, without the remedy:\n%s", err, out)
	}
}

// alone writes a program per header, which begins with first, beside a copy of them all.
func alone(t *testing.T, first string) (programs []string) {
	t.Helper()
	dir := t.TempDir()
	if err := Write(dir); err != nil {
		t.Fatal(err)
	}
	headers, err := filepath.Glob(filepath.Join(dir, "*.h"))
	here, _ := filepath.Glob("*.h")
	if err != nil || len(headers) != len(here) || len(here) < 15 {
		t.Fatalf("headers: %v of %v, %v", headers, here, err)
	}
	for _, h := range headers {
		line := fmt.Sprintf("#include %q\n", filepath.Base(h))
		path := strings.TrimSuffix(h, ".h") + ".c"
		if err := os.WriteFile(path, []byte(first+line+line+"int main(void) { return 0; }\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		programs = append(programs, path)
	}
	return programs
}

// On an emulated arm64 the C reader must read the same values as Go on this machine. An emulator cannot show that
// the order of memory accesses is right; the header argues that.
func TestCAgreesWithGoOnArm64(t *testing.T) {
	need.Tool(t, "aarch64-linux-gnu-gcc", "qemu-aarch64")
	bin := filepath.Join(t.TempDir(), "dump")
	args := append([]string{"-std=c11", "-O2", "-static", "-o", bin, "testdata/dump.c"}, strict...)
	run(t, "aarch64-linux-gnu-gcc", args...)
	path, w := newMirror(t, shm.Options{Counters: 256, LatencyCounters: 8, History: 32, CoolDown: time.Millisecond})
	furnish(t, w)
	if diff := cmp.Diff(dumpGo(t, path), run(t, "qemu-aarch64", bin, path)); diff != "" {
		t.Errorf("Go reads -, C on arm64 reads +:\n%s", diff)
	}
}
