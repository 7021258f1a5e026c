package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/rdmacore"
)

// TestRDMAMatrixNamesExistingTests compares the matrix of docs/rdma.md with the sources: every test that it names
// exists, and every test that runs in the root of a release is in it. `make test-releases` compares it with the run.
func TestRDMAMatrixNamesExistingTests(t *testing.T) {
	root, files := tracked(t)
	m, err := rdmacore.ReadMatrix(filepath.Join(root, "docs", "rdma.md"))
	if err != nil {
		t.Fatal(err)
	}
	var real []string
	for _, tests := range m.Tests {
		real = append(real, tests...)
	}
	all, inRoots := make(map[string]bool), 0
	for _, f := range files {
		if !strings.HasSuffix(f, "_test.go") {
			continue
		}
		src, err := os.ReadFile(filepath.Join(root, f))
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), f, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			fn, is := d.(*ast.FuncDecl)
			if !is || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Test") {
				continue
			}
			all[fn.Name.Name] = true
			body := string(src[fn.Pos()-file.FileStart : fn.End()-file.FileStart])
			if !strings.HasPrefix(string(src), "//go:build releases") || !strings.Contains(body, "NewRoot(t)") && !strings.Contains(body, "overKernel") && !strings.Contains(body, "overServer") {
				continue
			}
			inRoots++
			if !slices.Contains(real, fn.Name.Name) {
				t.Errorf("%s: %s runs over the real libraries, and the matrix of docs/rdma.md does not name it", f, fn.Name.Name)
			}
		}
	}
	for _, name := range append(real, m.Shim...) {
		if !all[name] {
			t.Errorf("docs/rdma.md: no such test: %s", name)
		}
	}
	if inRoots < 10 {
		t.Errorf("%d tests run in roots: the test looks at little", inRoots)
	}
}
