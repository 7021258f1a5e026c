//go:build releases

package rdmacore

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRan compares the matrix of docs/rdma.md with the tests that ran, by the file that they wrote. The suite sid changes
// every day: its release may be newer than the document's.
func TestRan(t *testing.T) {
	path := os.Getenv(RanEnv)
	if path == "" {
		t.Skipf("%s is not set: `make test-releases` sets it", RanEnv)
	}
	m, err := ReadMatrix("../../../docs/rdma.md")
	if err != nil {
		t.Fatal(err)
	}
	ran, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tests, versions := make(map[string][]string), make(map[string]string)
	for line := range strings.Lines(string(ran)) {
		word := strings.Fields(line)
		tests[word[1]] = append(tests[word[1]], word[0])
		versions[word[1]] = word[2]
	}
	for suite, list := range tests {
		slices.Sort(list)
		tests[suite] = slices.Compact(list)
	}
	if diff := cmp.Diff(m.Tests, tests); diff != "" {
		t.Errorf("the tests over the release of each suite (-docs/rdma.md +run):\n%s", diff)
	}
	for _, suite := range slices.Sorted(maps.Keys(versions)) {
		switch says, is := m.Versions[suite], versions[suite]; {
		case says == is:
		case suite == Suites()[2]:
			t.Logf("%s has %s now, docs/rdma.md says %s", suite, is, says)
		default:
			t.Errorf("%s has %s, docs/rdma.md says %s", suite, is, says)
		}
	}
}
