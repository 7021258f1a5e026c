package cli

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/flowtally/flowtally/cmd/internal/usage"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// man must print every page without a warning.
func TestEachCommandHasAManPageWithItsFlags(t *testing.T) {
	dir := t.TempDir()
	if code, _, talk := run(t, "__man", dir); code != exitOK {
		t.Fatalf("code %d: %s", code, talk)
	}
	parser, err := newParser(new(root), io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	pages := 0
	_ = kong.Visit(parser.Model.Node, func(v kong.Visitable, next kong.Next) error {
		n, ok := v.(*kong.Node)
		if !ok || n.Hidden {
			return nil
		}
		path := filepath.Join(dir, "man1", strings.ReplaceAll(usage.CommandPath(n), " ", "-")+".1")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Errorf("%s: %v", usage.CommandPath(n), err)
			return next(nil)
		}
		pages++
		for _, f := range n.Flags {
			if want := `\-\-` + strings.ReplaceAll(f.Name, "-", `\-`); !f.Hidden && !strings.Contains(string(text), want) {
				t.Errorf("%s does not name --%s", path, f.Name)
			}
		}
		return next(nil)
	})
	if pages < 20 {
		t.Errorf("only %d pages were found", pages)
	}
	need.Tool(t, "man")
	files, err := filepath.Glob(filepath.Join(dir, "man?", "*"))
	if err != nil || len(files) != pages+2 {
		t.Fatalf("%d files of %d commands: %v", len(files), pages, err)
	}
	for _, f := range files {
		cmd := exec.Command("man", "--warnings=w", "--local-file", f)
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANWIDTH=80")
		var talk strings.Builder
		cmd.Stderr = &talk
		out, err := cmd.Output()
		if err != nil || talk.Len() > 0 || !strings.Contains(string(out), "flowtally") {
			t.Errorf("man %s: %v\n%s", f, err, &talk)
		}
	}
}
