package cli

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/flowtally/flowtally/cmd/internal/manual"
	"github.com/flowtally/flowtally/cmd/internal/usage"
)

// commandsOfTheModel calls f with each command that does something itself.
func commandsOfTheModel(t *testing.T, f func(path string, flags []*kong.Flag)) {
	t.Helper()
	var r root
	parser, err := newParser(&r, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, leaf := range parser.Model.Leaves(true) {
		n++
		f(usage.CommandPath(leaf), slices.Concat(leaf.AllFlags(true)...))
	}
	if n < 25 {
		t.Fatalf("only %d commands were found", n)
	}
}

func TestALetterMeansOneThingInAllCommands(t *testing.T) {
	meaning := make(map[rune]string)
	commandsOfTheModel(t, func(path string, flags []*kong.Flag) {
		for _, f := range flags {
			if f.Short == 0 {
				continue
			}
			if other := meaning[f.Short]; other != "" && other != f.Name {
				t.Errorf("%s: -%c is --%s, and --%s elsewhere", path, f.Short, f.Name, other)
			}
			meaning[f.Short] = f.Name
		}
	})
}

func TestHelpShowsTheDefaultsOfTheManual(t *testing.T) {
	commandsOfTheModel(t, func(path string, flags []*kong.Flag) {
		var out bytes.Buffer
		if code := Main(t.Context(), strings.NewReader(""), &out, io.Discard, append(strings.Fields(path)[1:], "--help")); code != exitOK {
			t.Fatalf("%s --help: code %d", path, code)
		}
		help := strings.Join(strings.Fields(out.String()), " ")
		for _, f := range flags {
			text := manual.Default(f.Value)
			if text == "" || f.Hidden {
				continue
			}
			if !strings.Contains(help, "--"+f.Name+"="+f.Default) && !strings.Contains(help, `--`+f.Name+`="`+f.Default+`"`) && !strings.Contains(help, strings.TrimSpace(text)) {
				t.Errorf("%s --help does not tell that the default of --%s is %s", path, f.Name, f.Default)
			}
		}
	})
}
