//go:build cgo

package ibv

import (
	goflag "flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = goflag.Bool("update", false, "write the table of docs/testing.md")

// The table of docs/testing.md has every statement that the tests over the real libraries show.
func TestTheTableOfStatementsIsUpToDate(t *testing.T) {
	const (
		path  = "../docs/testing.md"
		begin = "<!-- statements: go test ./ibv -run TestTheTableOfStatementsIsUpToDate -update -->\n"
		end   = "<!-- statements: end -->\n"
	)
	var table strings.Builder
	table.WriteString("| reference | statement | test over the real libraries |\n| --- | --- | --- |\n")
	for _, of := range []struct {
		test       string
		statements []statement
	}{
		{"TestKernelFlowsFollowTheirManualPages", slices.Concat(attachStatements, createStatements, readStatements)},
		{"TestKernelCompCntrsFollowTheirManualPages", slices.Concat(draftStatements, mergedAttachStatements, mergedCreateStatements, capsStatements)},
	} {
		for _, s := range of.statements {
			shown := "`" + of.test + "`"
			if why := userSpace[s.at]; why != "" {
				shown = "none: " + why
			}
			fmt.Fprintf(&table, "| %s | %s | %s |\n", s.at, strings.ReplaceAll(s.says, "|", "\\|"), shown)
		}
	}

	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(doc), begin)
	have, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatal("docs/testing.md has no place for the table")
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+begin+table.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if have != table.String() {
		t.Errorf("the table of docs/testing.md is\n%s\nwant\n%s", have, table.String())
	}
}
