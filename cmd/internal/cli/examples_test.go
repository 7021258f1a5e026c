package cli

import (
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// These are the examples in --help.
func TestExamplesParse(t *testing.T) {
	var r root
	parser, err := newParser(&r, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	examples := 0
	err = kong.Visit(parser.Model.Node, func(v kong.Visitable, next kong.Next) error {
		node, ok := v.(*kong.Node)
		if !ok {
			return next(nil)
		}
		for line := range strings.Lines(node.Detail) {
			line, isExample := strings.CutPrefix(strings.TrimSpace(line), "flowtally ")
			if !isExample {
				continue
			}
			examples++
			line, _, _ = strings.Cut(line, " | ")
			// The shell splits it as it would split a typed line.
			words, err := exec.Command("sh", "-c", "printf '%s\\n' "+line).Output()
			if err != nil {
				t.Fatal(err)
			}
			var r root
			parser, err := newParser(&r, io.Discard, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := parser.Parse(strings.Split(strings.TrimSpace(string(words)), "\n")); err != nil {
				t.Errorf("%s: flowtally %s: %v", node.Path(), line, err)
			}
			if add := &r.Flows.Add; add.Name != "" {
				if _, err := add.flow(); err != nil {
					t.Errorf("%s: %v", line, err)
				}
			}
		}
		return next(nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	if examples < 15 {
		t.Errorf("%d examples were found", examples)
	}
}
