//go:build releases && cgo

package ibv

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/rdmacore"
	"github.com/flowtally/flowtally/probe"
)

var releases = make(map[string]*rdmacore.Release)

// release gets the release of a suite once, and prints which it is.
func release(t *testing.T, suite string) *rdmacore.Release {
	t.Helper()
	if releases[suite] == nil {
		releases[suite] = rdmacore.Get(t, suite)
	}
	t.Log(releases[suite])
	return releases[suite]
}

func init() {
	moreHeaders = func(t *testing.T) (all []headers) {
		for _, suite := range rdmacore.Suites() {
			all = append(all, headers{suite, release(t, suite).Include})
		}
		return all
	}
}

// hasOffsets reports whether libmlx5 of the release has __mlx5dv_create_flow.
func hasOffsets(r *rdmacore.Release) bool {
	switch r.Major {
	case 60:
		return r.Minor >= 2
	case 61, 62:
		return r.Minor >= 1
	}
	return r.At(63, 0)
}

// Each release gets a root of its own. A release later than the known ones must have the symbols of
// the newest known one.
func TestReleasesLoadWithTheirSymbols(t *testing.T) {
	if says := os.Getenv(insideEnv); says != "" {
		insideRelease(t, says)
		return
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, suite := range rdmacore.Suites() {
		t.Run(suite, func(t *testing.T) {
			r := release(t, suite).NewRoot(t)
			newer := map[string]bool{"IBVERBS_1.18": r.At(65, 0), "EFA_1.7": r.At(65, 0), "MLX5_1.25.1": hasOffsets(r.Release)}
			n := 0
			for library, source := range map[string]string{
				"libibverbs.so.1": "verbs_linux.c", "libmlx5.so.1": "mlx5_linux.c", "libefa.so.1": "efa_linux.c",
			} {
				has := exported(t, r, library)
				for _, s := range wanted(t, source) {
					n++
					want, depends := newer[s.Version]
					if has[s] != (want || !depends) {
						t.Errorf("%s has %s@%s: %v", library, s.Name, s.Version, has[s])
					}
				}
			}
			t.Logf("%d symbols with their versions; those of later releases: %v", n, newer)

			says := fmt.Sprintf("counters=%v offsets=%v listed=%v", newer["IBVERBS_1.18"], newer["MLX5_1.25.1"], rdmacore.Listed())
			out, err := r.Run(t.Context(), program, []string{insideEnv + "=" + says}, "-test.v", "-test.run=^TestReleasesLoadWithTheirSymbols$")
			if err != nil || !strings.Contains(string(out), "--- PASS: TestReleasesLoadWithTheirSymbols") {
				t.Errorf("the libraries of %s: %v", r, err)
			}
			t.Logf("inside:\n%s", out)
		})
	}
}

// symbol is a symbol of a shared library.
type symbol struct{ Name, Version string }

// wantedSymbol is a line of the tables with which the libraries are opened.
var wantedSymbol = regexp.MustCompile(`\{"(\w+)", "([A-Z0-9_.]+)", &`)

// wanted returns the symbols looked up by one of our C files.
func wanted(t *testing.T, file string) (list []symbol) {
	t.Helper()
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range wantedSymbol.FindAllStringSubmatch(string(src), -1) {
		list = append(list, symbol{m[1], m[2]})
	}
	if len(list) == 0 {
		t.Fatalf("%s asks for no symbol", file)
	}
	return list
}

// exported returns the symbols defined by a library of the release.
func exported(t *testing.T, r *rdmacore.Root, library string) map[symbol]bool {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(r.Dir, "usr/lib/*/"+library+"*"))
	if err != nil || len(found) == 0 {
		t.Fatalf("%s: finding %s: %v", r, library, err)
	}
	f, err := elf.Open(found[len(found)-1]) // the file; a link to it has the shorter name
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	has := make(map[symbol]bool)
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			has[symbol{s.Name, s.Version}] = true
		}
	}
	return has
}

// insideRelease runs in the root of a release. The libraries load, report their features, list the devices of the
// root by their providers, and refuse to open them.
func insideRelease(t *testing.T, says string) {
	lib := must(Load(Options{}))(t)
	defer lib.Close()
	mlx5 := must(loadMLX5("the release", Options{}))(t)
	defer mlx5.unload()
	_, noEFA := loadEFA(Options{}, featureExternal)
	must(loadEFA(Options{}, featureSRD))(t).unload()
	list, err := lib.Devices()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s; libefa: %v; devices %v", lib.path(), noEFA, list)
	got := fmt.Sprintf("counters=%v offsets=%v", lib.has("ibv_create_comp_cntr"), mlx5.offsets())
	if want, _, _ := strings.Cut(says, " listed"); got != want || (noEFA == nil) != lib.has("ibv_create_comp_cntr") {
		t.Errorf("the release has %s, libefa: %v; want %s", got, noEFA, want)
	}
	if !strings.HasSuffix(says, "listed=true") {
		return
	}
	types := make(map[string]NodeType)
	for _, d := range list {
		types[d.Name] = d.NodeType
	}
	if len(types) != 2 || types["mlx5_0"] != NodeCA || types["efa_0"] == NodeCA {
		t.Errorf("devices %v", list)
	}
	for _, d := range list {
		for _, r := range Probe(lib, d.Name) {
			if r.Answer != probe.Inconclusive || !strings.Contains(r.Reason, "ibv_open_device") {
				t.Errorf("%s: %v: %s", d.Name, r.Feature, r.Reason)
			}
		}
	}
}
