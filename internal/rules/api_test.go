package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// public packages are imported by others: their documentation is part of them.
var public = []string{
	"configs", "ibv", "ibv/ibvtest", "dataplane", "dataplane/engine", "dataplane/engine/backend", "dataplane/engine/rdma", "dataplane/engine/trial", "dataplane/flow", "probe",
	"plugin", "shm", "shm/include", "xdp",
}

// TestExportedNamesAreDocumented also looks at the files of other systems.
func TestExportedNamesAreDocumented(t *testing.T) {
	all := packages(t)
	seen := 0
	for _, name := range public {
		p, ok := all[name]
		if !ok {
			t.Errorf("package %s is not in the tree", name)
		}
		for _, f := range append(p.GoFiles, p.IgnoredGoFiles...) {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, f), nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if ast.IsGenerated(file) {
				continue
			}
			for _, d := range file.Decls {
				for _, bare := range undocumented(d) {
					t.Errorf("%s/%s:%d: %s has no doc comment", name, f, fset.Position(bare.Pos()).Line, bare.Name)
				}
				seen++
			}
		}
	}
	if seen < 500 {
		t.Errorf("only %d declarations were looked at", seen)
	}
}

// undocumented lists the exported names of a declaration that nothing explains.
// A comment on a group, or behind a name, is enough for its names.
func undocumented(d ast.Decl) (bare []*ast.Ident) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		wellKnown := d.Recv != nil && (d.Name.Name == "Error" || d.Name.Name == "String" || d.Name.Name == "Unwrap")
		if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) && !wellKnown {
			return []*ast.Ident{d.Name}
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
					bare = append(bare, s.Name)
				}
			case *ast.ValueSpec:
				for _, n := range s.Names {
					if n.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
						bare = append(bare, n)
					}
				}
			}
		}
	}
	return bare
}

func exportedReceiver(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}
	typ := f.Recv.List[0].Type
	for {
		switch t := typ.(type) {
		case *ast.StarExpr:
			typ = t.X
		case *ast.IndexExpr:
			typ = t.X
		case *ast.IndexListExpr:
			typ = t.X
		case *ast.Ident:
			return t.IsExported()
		default:
			return true
		}
	}
}
