package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// badText is an error text that starts as a sentence does ("CPU 3" is a name) or ends as one.
var badText = regexp.MustCompile(`^[A-Z][a-z]|[.!\n]$`)

// sentinelName is how sentinels are called.
var sentinelName = regexp.MustCompile(`^(Err[A-Z]\w*|err[A-Z]\w*|EOF)$`)

// compared are the places where one sentinel is told from another on purpose.
var compared = map[string]string{
	"plugin/errors.go": "looks for the row of a sentinel in its own table",
}

// TestErrorsAreAskedAndWrapped: errors are compared by errors.Is alone, but in
// an Is method, and their texts can be put behind another's colon.
func TestErrorsAreAskedAndWrapped(t *testing.T) {
	texts := 0
	for name, p := range packages(t) {
		for _, f := range p.GoFiles {
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, f), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			where := name + "/" + f
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					return n.Recv == nil || n.Name.Name != "Is"
				case *ast.BinaryExpr:
					equality := n.Op == token.EQL || n.Op == token.NEQ
					if equality && !isNil(n.X) && !isNil(n.Y) && (isSentinel(n.X) || isSentinel(n.Y)) && compared[where] == "" {
						t.Errorf("%s:%d: an error is compared by %s: ask errors.Is", where, fset.Position(n.Pos()).Line, n.Op)
					}
				case *ast.CallExpr:
					text, ok := errorText(n)
					if !ok {
						break
					}
					texts++
					if badText.MatchString(text) {
						t.Errorf("%s:%d: the error %q is a sentence of its own", where, fset.Position(n.Pos()).Line, text)
					}
				}
				return true
			})
		}
	}
	if texts < 300 {
		t.Errorf("only %d error texts were looked at", texts)
	}
}

func isNil(e ast.Expr) bool {
	name, ok := e.(*ast.Ident)
	return ok && name.Name == "nil"
}

func isSentinel(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return sentinelName.MatchString(e.Name)
	case *ast.SelectorExpr:
		return sentinelName.MatchString(e.Sel.Name)
	}
	return false
}

// errorText is the literal that a call of errors.New or fmt.Errorf begins with.
func errorText(call *ast.CallExpr) (string, bool) {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return "", false
	}
	pkg, ok := f.X.(*ast.Ident)
	if !ok || !(pkg.Name == "errors" && f.Sel.Name == "New" || pkg.Name == "fmt" && f.Sel.Name == "Errorf") {
		return "", false
	}
	lit, ok := call.Args[0].(*ast.BasicLit)
	if !ok {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}
