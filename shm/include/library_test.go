package include

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// buildLibrary compiles libflowtally.so and returns its path.
func buildLibrary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "libflowtally.so")
	args := []string{"-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wmissing-prototypes", "-Wl,-z,defs"}
	args = append(append(args, strict...), "-o", path, "../library/libflowtally.c")
	run(t, "cc", args...)
	return path
}

// symbols returns the names that a file defines, as nm lists them.
func symbols(t *testing.T, args ...string) (names []string) {
	t.Helper()
	for line := range strings.Lines(run(t, "nm", append([]string{"--defined-only"}, args...)...)) {
		f := strings.Fields(line)
		names = append(names, f[len(f)-1])
	}
	slices.Sort(names)
	return names
}

// headers returns the text of every header.
func headers(t *testing.T) string {
	t.Helper()
	paths, err := filepath.Glob("flowtally*.h")
	if err != nil || len(paths) == 0 {
		t.Fatalf("headers: %v, %v", paths, err)
	}
	var all strings.Builder
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

var (
	declared = regexp.MustCompile(`(?m)^FT_API [^{;]*?(\w+)\([^{;]*\);`)
	defined  = regexp.MustCompile(`(?m)^FT_API [^{;]*?(\w+)\([^{;]*\) \{`)
	hidden   = regexp.MustCompile(`(?m)^static inline [^{;]*\);`)
	typedefs = regexp.MustCompile(`(?m)^\} (\w+);`)
)

func names(re *regexp.Regexp, text string) (names []string) {
	for _, m := range re.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return names
}

// exported returns the symbols that the library is to export: each function that a header declares with
// FT_API, and the size of each type.
func exported(t *testing.T) []string {
	t.Helper()
	text := headers(t)
	list := names(declared, text)
	if len(list) < 20 {
		t.Fatalf("only %d functions are declared with FT_API: %q", len(list), list)
	}
	for _, name := range names(typedefs, text) {
		list = append(list, name+"_size")
	}
	slices.Sort(list)
	return list
}

// The library must export exactly the functions that the headers declare with FT_API. Every function
// that a header declares before its definition is for programs, so it must have FT_API.
func TestLibraryExportsWhatHeadersDeclare(t *testing.T) {
	need.Tool(t, "cc", "nm")
	text := headers(t)
	if diff := cmp.Diff(names(declared, text), names(defined, text)); diff != "" {
		t.Errorf("declared with FT_API -, defined with FT_API +:\n%s", diff)
	}
	if found := hidden.FindAllString(text, -1); found != nil {
		t.Errorf("declared for programs without FT_API, so absent from the library: %q", found)
	}
	if diff := cmp.Diff(exported(t), symbols(t, "-D", buildLibrary(t))); diff != "" {
		t.Errorf("the headers declare -, the library exports + (sizes: FT_SIZE_OF in libflowtally.c):\n%s", diff)
	}
}

// A program compiled with FLOWTALLY_SHARED calls the library, and has no code of the reader in it.
func TestProgramsLinkToTheLibrary(t *testing.T) {
	need.Tool(t, "cc", "nm")
	library := buildLibrary(t)
	programs, err := filepath.Glob("../../examples/*/*.c")
	if err != nil || len(programs) == 0 {
		t.Fatalf("programs: %v, %v", programs, err)
	}
	for _, program := range append(programs, "testdata/dump.c") {
		bin := filepath.Join(t.TempDir(), "program")
		args := append([]string{"-std=c11", "-O0", "-DFLOWTALLY_SHARED", "-o", bin, program, library}, strict...)
		run(t, "cc", args...)
		for _, name := range symbols(t, bin) {
			if strings.HasPrefix(name, "ft_") {
				t.Errorf("%s defines %s: it comes from a header in place of the library", program, name)
			}
		}
	}
}
