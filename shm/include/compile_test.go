package include

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
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
		need  bool // CI has it: its absence is a missing need
		args  []string
	}{
		{"cc", nil, true, []string{"-std=c11"}},
		{"c++", nil, true, []string{"-x", "c++", "-std=c++17"}},
		{"clang", []string{"clang-14"}, false, []string{"-std=c11"}},
		{"clang++", []string{"clang++-14"}, false, []string{"-x", "c++", "-std=c++17"}},
		{"aarch64-linux-gnu-gcc", nil, true, []string{"-std=c11"}},
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
				if tt.need {
					need.Tool(t, tt.name)
				}
				t.Skipf("needs %s", tt.name)
			}
			for _, program := range programs {
				args := append(append([]string{}, tt.args...), strict...)
				run(t, compiler, append(args, "-O2", "-c", "-o", filepath.Join(t.TempDir(), "o"), program)...)
			}
		})
	}
}
