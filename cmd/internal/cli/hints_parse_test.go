package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Each flowtally command in a next step must work when pasted, with its placeholders filled in. The text after it must
// be a comment of the shell.
func TestNextStepsParse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("flows: []\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("%s", "x", "'%s'", "x", "FILE", file, "NAME", "x", "MATCH", "any", " [ADDRESS]", "", "PATH", file)
	parsed := 0
	for _, text := range nextSteps(t) {
		for _, m := range nextCommand.FindAllStringSubmatch(text, -1) {
			var r root
			p, err := newParser(&r, io.Discard, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			args := strings.Fields(strings.ReplaceAll(fill.Replace(strings.TrimSpace(m[1])), "'", ""))[1:]
			if slices.Equal(args[len(args)-1:], []string{"--help"}) {
				args = append(args[:len(args)-1], "x", "any") // --help ends the parse
			}
			parsed++
			if _, err := p.Parse(args); err != nil {
				t.Errorf("next step %q: flowtally %s: %v", text, strings.Join(args, " "), err)
			}
		}
	}
	t.Logf("%d commands", parsed)
	if parsed < 20 {
		t.Error("the test looks at little")
	}
}

// nextSteps lists the next steps in the sources: those in the table hints, in calls of withHint, and the fixes of
// probes and conditions.
func nextSteps(t *testing.T) (steps []string) {
	t.Helper()
	for _, h := range hints {
		steps = append(steps, h.try)
	}
	err := filepath.WalkDir("../../..", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains([]string{".git", "bin", "dist"}, d.Name()) {
			return filepath.SkipDir // no sources
		}
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if name, is := n.Fun.(*ast.Ident); is && name.Name == "withHint" {
					steps = append(steps, textOf(n.Args[1]))
				}
			case *ast.KeyValueExpr:
				if name, is := n.Key.(*ast.Ident); is && name.Name == "Fix" {
					steps = append(steps, textOf(n.Value))
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

// textOf returns the text of an expression, with x for a part that is no literal.
func textOf(n ast.Expr) string {
	switch n := n.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(n.Value); err == nil {
			return s
		}
	case *ast.BinaryExpr:
		return textOf(n.X) + textOf(n.Y)
	}
	return "x"
}
