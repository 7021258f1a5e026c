package include

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/shm"
)

// run runs a program to its end and returns what it printed.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

var strict = []string{"-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-I."}

// build compiles a program of testdata and returns its path.
func build(t *testing.T, program string, flags ...string) string {
	t.Helper()
	need.Tool(t, "cc")
	bin := filepath.Join(t.TempDir(), program)
	args := append([]string{"-std=c11", "-O2", "-g", "-o", bin, filepath.Join("testdata", program+".c")}, strict...)
	run(t, "cc", append(args, flags...)...)
	return bin
}

// The header is clean C11 and C++17 for every compiler, also where it is
// included twice in a program, and for arm64.
func TestHeaderCompilesClean(t *testing.T) {
	programs, err := filepath.Glob("testdata/*.c")
	if err != nil || len(programs) == 0 {
		t.Fatalf("programs: %v, %v", programs, err)
	}
	programs = append(programs, "../../examples/c-reader/c-reader.c")
	for _, tt := range []struct {
		name  string // of the compiler; more names are tried in turn
		other []string
		args  []string
	}{
		{"cc", nil, []string{"-std=c11"}},
		{"c++", nil, []string{"-x", "c++", "-std=c++17"}},
		{"clang", []string{"clang-14"}, []string{"-std=c11"}},
		{"clang++", []string{"clang++-14"}, []string{"-x", "c++", "-std=c++17"}},
		{"aarch64-linux-gnu-gcc", nil, []string{"-std=c11"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
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
				run(t, compiler, append(args, "-O2", "-c", "-o", filepath.Join(t.TempDir(), "o"), program)...)
			}
		})
	}
}

// The C reader reads on arm64 what Go reads here. An emulator shows that the
// code is right, not that the order of memory accesses is: that is argued in
// the header.
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
