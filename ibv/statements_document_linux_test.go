//go:build cgo

package ibv

import (
	goflag "flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/golden"
)

var update = goflag.Bool("update", false, "write the table of docs/testing.md")

// The table of docs/testing.md has every statement that the tests over the real libraries show.
func TestTheTableOfStatementsIsUpToDate(t *testing.T) {
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

	golden.CompareSection(t, "../docs/testing.md", "statements", table.String(), *update)
}
