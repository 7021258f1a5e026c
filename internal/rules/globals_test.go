package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
	"testing"
)

// settled are the package-level variables that neither are sentinels, patterns
// and tables nor have a value that is computed once, and why they may be.
var settled = map[string]string{
	"configs.sampleYAML":              "embedded; handed out as a copy",
	"internal/bench/shmrows.readC":    "embedded",
	"internal/bench/shmrows.crowdC":   "embedded",
	"internal/bench/shmrows.hostileC": "embedded",
	"internal/bench/xdprows.aclC":     "embedded",
	"shm/include.header":              "embedded",
	"ibv/ibvtest.sources":             "embedded",
	"ibv/internal/abi.verbs":          "embedded",
	"dataplane/flow.full":             "computed from the table of clauses, never changed",
	"internal/oracle.be":              "a short name for binary.BigEndian",
	"shm.anchor":                      "the one offset between Go's clock and CLOCK_MONOTONIC",
}

// TestNothingIsGlobal: a package keeps its state in values that its callers hold. Package-level
// variables are sentinels, patterns, tables, or results that are computed once. None is assigned to
// after its declaration, and only sentinels are exported.
func TestNothingIsGlobal(t *testing.T) {
	unused := make(map[string]bool)
	for name := range settled {
		unused[name] = true
	}
	vars := 0
	for name, p := range packages(t) {
		fset := token.NewFileSet()
		var files []*ast.File
		for _, f := range p.GoFiles {
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, f), nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if !ast.IsGenerated(file) {
				files = append(files, file)
			}
		}
		at := func(n ast.Node) string {
			pos := fset.Position(n.Pos())
			return name + "/" + filepath.Base(pos.Filename)
		}
		for _, file := range files {
			for _, d := range file.Decls {
				g, ok := d.(*ast.GenDecl)
				if !ok || g.Tok != token.VAR {
					continue
				}
				for _, s := range g.Specs {
					s := s.(*ast.ValueSpec)
					for i, n := range s.Names {
						if n.Name == "_" {
							continue
						}
						vars++
						delete(unused, name+"."+n.Name)
						var value ast.Expr
						if i < len(s.Values) {
							value = s.Values[i]
						}
						kind := kindOf(value)
						if kind == other && settled[name+"."+n.Name] == "" {
							t.Errorf("%s: %s is package-level state: give it an owner", at(n), n.Name)
						}
						if n.IsExported() && kind != sentinel {
							t.Errorf("%s: %s can be changed by whoever imports the package", at(n), n.Name)
						}
					}
				}
			}
		}
		for _, a := range assigned(fset, files) {
			t.Errorf("%s:%d: %s is assigned to, and is package-level", at(a), fset.Position(a.Pos()).Line, a.Name)
		}
	}
	if vars < 50 {
		t.Errorf("only %d variables were looked at", vars)
	}
	for name := range unused {
		t.Errorf("%s has a reason to be and is not there any more", name)
	}
}

type kind int

const (
	other kind = iota
	sentinel
	constant // a table, a pattern, something computed once
)

// kindOf returns the kind of a variable by its initial value.
func kindOf(value ast.Expr) kind {
	switch v := value.(type) {
	case *ast.CompositeLit:
		if name := types.ExprString(v.Type); !strings.HasPrefix(name, "sync.") && !strings.HasPrefix(name, "atomic.") {
			return constant
		}
	case *ast.SelectorExpr, *ast.BinaryExpr:
		// CPU features: golang.org/x/sys/cpu.
		if text := types.ExprString(v); strings.HasPrefix(text, "cpu.") && !strings.Contains(text, "(") {
			return constant
		}
	case *ast.CallExpr:
		switch name := types.ExprString(v.Fun); {
		case name == "errors.New", name == "fmt.Errorf":
			return sentinel
		case name == "regexp.MustCompile", strings.HasPrefix(name, "sync.Once"):
			return constant
		}
	}
	return other
}

// assigned finds the assignments to package-level variables in functions. Imports
// are not resolved: the package's own names are enough.
func assigned(fset *token.FileSet, files []*ast.File) (found []*ast.Ident) {
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	conf := types.Config{Error: func(error) {}, Importer: nothing{}}
	pkg, _ := conf.Check("p", fset, files, info) // incomplete: imports are not resolved
	note := func(e ast.Expr) {
		for {
			switch x := e.(type) {
			case *ast.IndexExpr:
				e = x.X
			case *ast.SelectorExpr:
				e = x.X
			case *ast.ParenExpr:
				e = x.X
			case *ast.StarExpr:
				e = x.X
			case *ast.Ident:
				if v, ok := info.Uses[x].(*types.Var); ok && v.Parent() == pkg.Scope() {
					found = append(found, x)
				}
				return
			default:
				return
			}
		}
	}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, e := range n.Lhs {
					note(e)
				}
			case *ast.IncDecStmt:
				note(n.X)
			case *ast.RangeStmt:
				if n.Tok == token.ASSIGN {
					note(n.Key)
					note(n.Value)
				}
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.Ident); ok && len(n.Args) > 0 && (f.Name == "delete" || f.Name == "clear" || f.Name == "copy") {
					note(n.Args[0])
				}
			}
			return true
		})
	}
	return found
}

// nothing imports no package.
type nothing struct{}

func (nothing) Import(path string) (*types.Package, error) {
	p := types.NewPackage(path, filepath.Base(path))
	p.MarkComplete()
	return p, nil
}
