package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const source = `package p

func (w *W[T]) Grow(n int) error {
	defer w.lock()()
	if n < w.n && !w.closed {
		w.log.Info("grown", "n", n+1)
		w.n = n
	}
	for i := range n {
		w.n++
		w.mask |= 1 << i
	}
	w.wake()
	err := w.sync()
	return err
}
`

func TestSites(t *testing.T) {
	all, err := sitesOfFile("p/w.go", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range all {
		if m.File != "p/w.go" || m.Func != "W.Grow" || m.Package() != "p" {
			t.Errorf("mutant %q of package %q", m, m.Package())
		}
		got = append(got, m.Change)
	}
	want := []string{
		"defer w.lock()() => removed",
		"n < w.n && !w.closed => false && (n < w.n && !w.closed)",
		"n < w.n && !w.closed => true || (n < w.n && !w.closed)",
		"n < w.n && !w.closed => n < w.n || !w.closed",
		"n < w.n => n <= w.n",
		"!w.closed => w.closed",
		"w.n = n => _ = n",
		"w.n++ => w.n--",
		"w.mask |= 1 << i => w.mask &= 1 << i",
		"1 << i => 1 >> i",
		"1 => 2",
		"w.wake() => removed",
		"return err => return nil",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mutants (-want +got):\n%s", diff)
	}
	if got := string(all[4].apply([]byte(source))); got != strings.Replace(source, "n < w.n", "n <= w.n", 1) {
		t.Errorf("applied:\n%s", got)
	}
}

// TestRepeatedChangesHaveNames: two equal changes of one function are two mutants.
func TestRepeatedChangesHaveNames(t *testing.T) {
	all, err := sitesOfFile("p.go", []byte("package p\nfunc f() { n++; n++ }\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[0].Change != "n++ => n--" || all[1].Change != "n++ => n-- #2" {
		t.Errorf("mutants %q", all)
	}
}

// TestNamesAreUnique: a line of the list names one place of the sources.
func TestNamesAreUnique(t *testing.T) {
	for _, dir := range packages {
		all, err := sites("../..", dir)
		if err != nil {
			t.Fatal(err)
		}
		seen := make(map[string]bool)
		for _, m := range all {
			if seen[m.String()] {
				t.Errorf("%s names two mutants", m)
			}
			seen[m.String()] = true
		}
		if len(all) < 20 {
			t.Errorf("%s has %d mutants", dir, len(all))
		}
	}
}

// TestEveryPackageIsDrawnFrom: mutants are drawn from each package of the product's directories, and each has a package
// whose tests may kill it.
func TestEveryPackageIsDrawnFrom(t *testing.T) {
	exceptions := []string{
		"ibv/ibvtest", "ibv/ibvtest/build", "plugin/plugintest", "shm/shmtest", // for tests
		"shm/include", // C headers, and the function that copies them
	}
	const root = "../.."
	for _, top := range []string{"ibv", "dataplane", "xdp", "shm", "plugin", "configs"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			dir, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			dir = filepath.ToSlash(dir)
			all, err := sites(root, dir)
			if err != nil || len(all) == 0 || slices.Contains(exceptions, dir) {
				return err
			}
			if !slices.Contains(packages, dir) {
				t.Errorf("no mutant is drawn from %s", dir)
			}
			if len(all[0].testPackages(root)) == 0 {
				t.Errorf("no test kills a mutant of %s", dir)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

const moduleText = "module m\n\ngo 1.26\n"

const product = `package p

func Max(a, b int) int {
	if a < b {
		return b
	}
	return a
}

func Unused() { println() }
`

const productTest = `package p

import "testing"

func TestMax(t *testing.T) {
	if Max(1, 2) != 2 || Max(2, 1) != 2 {
		t.Error()
	}
}

func TestNothing(t *testing.T) {}
`

// TestMutantsMeetTheTestsThatCoverThem runs a module with one good test, one that
// tests nothing, and a function that no test calls.
func TestMutantsMeetTheTestsThatCoverThem(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"go.mod": moduleText, "p/p.go": product, "p/p_test.go": productTest} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tests, err := measure(t.Context(), root, "p", t.TempDir(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if len(tests) != 2 {
		t.Fatalf("measured %v", tests)
	}
	all, err := sites(root, "p")
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for _, m := range all {
		meet := slices.DeleteFunc(slices.Clone(tests), func(x test) bool { return !x.covers(m.File, m.line) })
		v, err := kill(t.Context(), root, t.TempDir(), m, "p", meet, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		got[m.Change] = v.killer
	}
	want := map[string]string{
		"a < b => false && (a < b)": "TestMax",
		"a < b => true || (a < b)":  "TestMax",
		"a < b => a <= b":           "", // equivalent
		"println() => removed":      "", // not covered
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("killers (-want +got):\n%s", diff)
	}

	list := "seed 1\n\nkilled    p/p.go  Max  a < b => true || (a < b)  TestMax\n" +
		"killed    p/p.go  Max  a > b => a >= b  TestMax\nsurvived  p/p.go  Max  a < b => a <= b  1 tests\n"
	list += "killed    moved/p.go  Max  a > b => a >= b  TestMax\nkilled    moved/p.go  Max  a == b => a != b  TestMax\n"
	found, gone, err := find(root, killedLines(list))
	if err != nil || len(found) != 1 || gone != 3 || found[0].killer != "TestMax" {
		t.Errorf("found %v, %d gone, %v", found, gone, err)
	}
	for killer, want := range map[string]string{"TestMax": "TestMax", "TestThatIsGone": "TestMax", "TestNothing": "TestMax"} {
		if name, err := killAgain(t.Context(), root, t.TempDir(), found[0].Mutant, killer, time.Minute); err != nil || name != want {
			t.Errorf("the mutant that %s killed: killed by %q, %v", killer, name, err)
		}
	}
}
