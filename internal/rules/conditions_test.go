package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var (
	// conditionCode is how the sources write the code of a condition.
	conditionCode = regexp.MustCompile(`\bCode: +"([a-z]+(?:-[a-z]+)+)"`)
	// conditionRow is a row of the table of conditions in docs/operating.md.
	conditionRow = regexp.MustCompile("(?m)^\\| `([a-z]+(?:-[a-z]+)+)` \\| (?:high|medium|low) \\|")
)

// TestConditionsAreExplained: what an operator is shown stands in the table that says what
// to do, and the table names nothing that is not shown any more.
func TestConditionsAreExplained(t *testing.T) {
	text, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	explained := map[string]bool{}
	for _, m := range conditionRow.FindAllSubmatch(text, -1) {
		explained[string(m[1])] = true
	}
	raised := map[string]bool{}
	var sources []byte
	all := packages(t)
	for _, name := range []string{"dataplane/engine", "plugin"} {
		for _, f := range all[name].GoFiles {
			data, err := os.ReadFile(filepath.Join(all[name].Dir, f))
			if err != nil {
				t.Fatal(err)
			}
			sources = append(sources, data...)
			for _, m := range conditionCode.FindAllSubmatch(data, -1) {
				code := string(m[1])
				if raised[code] = true; !explained[code] {
					t.Errorf("%s/%s raises %s, which docs/operating.md does not explain", name, f, code)
				}
			}
		}
	}
	if len(raised) < 8 {
		t.Errorf("only %d conditions were found in the sources", len(raised))
	}
	for code := range explained {
		if !regexp.MustCompile(`"` + code + `"`).Match(sources) {
			t.Errorf("docs/operating.md explains %s, which nothing raises", code)
		}
	}
}
