package completion

import (
	"slices"
	"testing"

	"github.com/alecthomas/kong"
)

// A mirror may name a counter like a flag. Completing it as an argument would set the flag.
func TestCompleteLeavesOutFlagsOfAMirror(t *testing.T) {
	var model struct {
		Get struct {
			Mirror string
			Name   []string `arg:"" optional:""`
		} `cmd:""`
	}
	parser, err := kong.New(&model)
	if err != nil {
		t.Fatal(err)
	}
	counters := func(*kong.Value, map[string]string) []string { return []string{"--mirror=/tmp/x", "-h", "web"} }
	if got := Complete(parser.Model.Node, []string{"get", ""}, counters); !slices.Equal(got, []string{"web"}) {
		t.Errorf("candidates %q", got)
	}
	if got := Complete(parser.Model.Node, []string{"get", "--mir"}, counters); !slices.Equal(got, []string{"--mirror"}) {
		t.Errorf("candidates of a flag %q", got)
	}
}
