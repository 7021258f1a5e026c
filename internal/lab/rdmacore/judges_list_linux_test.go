//go:build releases

package rdmacore

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// judgedEnv names the file that collects the rows of the judges' table: `make test-judges` prints it.
const judgedEnv = "FLOWTALLY_JUDGED"

var update = flag.Bool("update", false, "write testdata/judges/passes.txt from the verdicts of this run")

// judge compares the verdicts on a device with the lists. Each case passes and is in passes.txt, fails and is in known.txt, or
// is skipped and in neither.
func (c *court) judge(t *testing.T, device string, got verdicts) {
	t.Helper()
	version := fmt.Sprintf("%d.%d", c.Major, c.Minor)
	passes, known := c.list(t, "passes.txt"), c.list(t, "known.txt")
	if *update {
		passes = c.pass(t, passes, device, version, got)
	}
	for _, problem := range compare(passes, known, device, version, got) {
		t.Error(problem)
	}
	c.tally(t, device, version, got)
}

func (c *court) list(t *testing.T, file string) []listedCase {
	t.Helper()
	list, err := readCases(filepath.Join("testdata/judges", file))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// tally writes a row of the judges' table for each judge of the verdicts. docs/testing.md has the row of a release that the
// lists name.
func (c *court) tally(t *testing.T, device, version string, got verdicts) {
	t.Helper()
	number := make(map[string]map[string]int)
	for name, verdict := range got {
		if verdict != "pass" && verdict != "skip" {
			verdict = "listed"
		}
		judge := judgeOf(name)
		if number[judge] == nil {
			number[judge] = make(map[string]int)
		}
		number[judge][verdict]++
	}
	doc, err := os.ReadFile("../../../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, judge := range slices.Sorted(maps.Keys(number)) {
		n := number[judge]
		row := fmt.Sprintf("| %s | `%s` | %s | %d | %d | %d |", judge, device, version, n["pass"], n["skip"], n["listed"])
		t.Log(row)
		if names(c.list(t, "known.txt"), version) && !strings.Contains(string(doc), row) {
			t.Errorf("docs/testing.md does not have the row %s", row)
		}
		if path := os.Getenv(judgedEnv); path != "" {
			appendLine(t, path, row)
		}
	}
}

func appendLine(t *testing.T, path, line string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, line); err != nil {
		t.Fatal(err)
	}
}

// pass puts the cases that pass into passes.txt, in place of those of the same judges, device and release.
func (c *court) pass(t *testing.T, list []listedCase, device, version string, got verdicts) []listedCase {
	t.Helper()
	present := make(map[string]bool)
	for name := range got {
		present[judgeOf(name)] = true
	}
	for i := range list {
		if list[i].device == device && present[judgeOf(list[i].name)] {
			list[i].releases = slices.DeleteFunc(list[i].releases, func(r string) bool { return r == version })
		}
	}
	for name, verdict := range got {
		if verdict != "pass" {
			continue
		}
		at := slices.IndexFunc(list, func(p listedCase) bool { return p.device == device && p.name == name })
		if at < 0 {
			at = len(list)
			list = append(list, listedCase{device: device, name: name})
		}
		list[at].releases = append(list[at].releases, version)
		slices.Sort(list[at].releases)
	}
	list = slices.DeleteFunc(list, func(p listedCase) bool { return len(p.releases) == 0 })
	slices.SortFunc(list, func(a, b listedCase) int {
		return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.name, b.name))
	})
	var text strings.Builder
	text.WriteString("# passes (go test -tags releases -run Judge -update writes this file)\n")
	for _, p := range list {
		fmt.Fprintf(&text, "%s %s %s\n", strings.Join(p.releases, ","), p.device, p.name)
	}
	if err := os.WriteFile(filepath.Join("testdata/judges", "passes.txt"), []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return list
}
