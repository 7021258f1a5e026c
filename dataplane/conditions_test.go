package dataplane_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
)

var update = flag.Bool("update", false, "write docs/conditions.md")

//go:generate go test -run TestConditionsDocumentHasEveryCode -update

// docs/conditions.md is generated from the registry.
func TestConditionsDocumentHasEveryCode(t *testing.T) {
	const path = "../docs/conditions.md"
	var want strings.Builder
	want.WriteString("<!-- Generated from dataplane/conditions.go: go test ./dataplane -run TestConditionsDocumentHasEveryCode -update -->\n# Conditions\n\n" +
		wrap("This page is for operators. A condition is a state that needs attention. Each has a stable code. The log of `flowtally run` shows it when it is "+
			"raised (`condition raised`, with the fix) and when it ends (`condition gone`). `flowtally flows list` lists conditions "+
			"below the flows, and `Service.Conditions` returns them to an embedder. `run --strict` ends with 3 if one of high "+
			"severity is raised at the start.") + "\n")
	words := map[dataplane.Severity]string{
		dataplane.High:   "High: some flows are not counted, or counts may be wrong",
		dataplane.Medium: "Medium: counts are right, but cost more or cover less than configured",
		dataplane.Low:    "Low: counts are right, and something could be better",
	}
	kebab := regexp.MustCompile(`^[a-z]+(-[a-z]+)+$`)
	seen := map[dataplane.ConditionCode]bool{}
	last := dataplane.Severity(255)
	for _, c := range dataplane.ConditionInfos {
		if c.Severity > last || seen[c.Code] || !kebab.MatchString(string(c.Code)) || c.Text == "" || c.Fix == "" {
			t.Errorf("condition %q: out of order, twice, or incomplete: %+v", c.Code, c)
		}
		seen[c.Code] = true
		if c.Severity != last {
			fmt.Fprintf(&want, "\n## %s\n", words[c.Severity])
			last = c.Severity
		}
		fmt.Fprintf(&want, "\n### `%s`\n\n%s\n\n%s\n", c.Code, wrap(c.Text), wrap("**Fix**: "+c.Fix))
	}
	if *update {
		if err := os.WriteFile(path, []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want.String() {
		t.Error("docs/conditions.md is not that of the registry: go test ./dataplane -run TestConditionsDocumentHasEveryCode -update")
	}
}

// wrap breaks a text into lines of at most 120 characters.
func wrap(text string) string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > 120 {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return strings.Join(append(lines, line), "\n")
}
