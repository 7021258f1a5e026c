package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// clock are the functions of package time that read the clock or wait. Durations and dates are only numbers.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"}

// lab is the tree of packages that only tests import.
const lab = "/internal/lab"

// seedPackage reads the clock for a number, and a repeated test gets the number again.
const seedPackage = "/internal/lab/seed"

// tests knows the declarations in the test files of one package.
type tests struct {
	used   map[string]map[string]bool // the names that a declaration uses, by its own name
	reason map[string]string          // the real time in a declaration itself, by its name
}

// readTests parses the test files of a package, and looks into the packages of internal/lab that they import.
func (s suite) readTests(pkg string, flags []string) (*tests, error) {
	args := []string{"list", "-find", "-json=Dir,Module"}
	for _, f := range flags {
		if strings.HasPrefix(strings.TrimLeft(f, "-"), "tags=") {
			args = append(args, f)
		}
	}
	cmd := exec.Command(s.command, append(args, pkg)...)
	cmd.Dir = s.dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the package: %w: %s", err, stderr.Bytes())
	}
	var at struct {
		Dir    string
		Module struct{ Path, Dir string }
	}
	if err := json.Unmarshal(out, &at); err != nil {
		return nil, fmt.Errorf("reading the output of go list: %w", err)
	}

	t := &tests{used: make(map[string]map[string]bool), reason: make(map[string]string)}
	files, err := filepath.Glob(filepath.Join(at.Dir, "*_test.go"))
	if err != nil {
		return nil, fmt.Errorf("listing the test files: %w", err)
	}
	helpers := make(map[string]bool) // imported packages of internal/lab, and whether they have real time
	inHelper := func(imported string) bool {
		local, ours := strings.CutPrefix(imported, at.Module.Path+"/")
		if !ours || !strings.HasPrefix("/"+local, lab) || "/"+local == seedPackage {
			return false
		}
		real, known := helpers[imported]
		if !known {
			real = hasRealTime(filepath.Join(at.Module.Dir, local))
			helpers[imported] = real
		}
		return real
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("parsing a test file: %w", err)
		}
		t.add(file, inHelper)
	}
	return t, nil
}

// hasRealTime reports whether any source of a package of internal/lab, tests apart, has real time.
func hasRealTime(dir string) bool {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return false
	}
	t := &tests{used: make(map[string]map[string]bool), reason: make(map[string]string)}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return false
		}
		t.add(file, func(string) bool { return false })
	}
	return len(t.reason) > 0
}

// add notes the declarations of a file. inHelper tells which imported packages of internal/lab have real time.
func (t *tests) add(file *ast.File, inHelper func(imported string) bool) {
	imports := make(map[string]string) // the path, by the name in this file
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		name := path.Base(imported)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		imports[name] = imported
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			t.note(d.Name.Name, d, imports, inHelper)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok {
					for _, name := range v.Names {
						t.note(name.Name, v, imports, inHelper)
					}
				}
			}
		}
	}
}

// note notes one declaration: the names that it uses, and the first real time in it. Declarations of one name, such as
// methods of several types, are one.
func (t *tests) note(name string, decl ast.Node, imports map[string]string, inHelper func(string) bool) {
	if t.used[name] == nil {
		t.used[name] = make(map[string]bool)
	}
	because := func(text string) {
		if t.reason[name] == "" {
			t.reason[name] = text
		}
	}
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			because("a goroutine")
		case *ast.CallExpr:
			if call, ok := n.Fun.(*ast.SelectorExpr); ok && call.Sel.Name == "Go" {
				because("a goroutine") // sync.WaitGroup.Go
			}
		case *ast.SelectorExpr:
			pkg, ok := n.X.(*ast.Ident)
			if !ok || imports[pkg.Name] == "" {
				t.used[name][n.Sel.Name] = true
				break
			}
			imported := imports[pkg.Name]
			if isRealTime(imported, n.Sel.Name) || inHelper(imported) {
				because(pkg.Name + "." + n.Sel.Name)
			}
			return false
		case *ast.Ident:
			t.used[name][n.Name] = true
		}
		return true
	})
}

// isRealTime reports whether a name of an imported package waits, reads the clock, or leaves the process.
func isRealTime(imported, name string) bool {
	switch imported {
	case "time":
		return slices.Contains(clock, name)
	case "context":
		return strings.HasPrefix(name, "With") // a context that ends
	case "net":
		return strings.HasPrefix(name, "Dial") || strings.HasPrefix(name, "Listen") || strings.HasPrefix(name, "File")
	case "net/http", "net/http/httptest", "os/exec", "os/signal", "syscall", "golang.org/x/sys/unix":
		return true
	}
	return false
}

// realTime returns the first real time in a test and in the declarations of the test files that it uses, or "".
func (t *tests) realTime(test string) string {
	if t == nil {
		return ""
	}
	seen := map[string]bool{test: true}
	for next := []string{test}; len(next) > 0; next = next[1:] {
		if why := t.reason[next[0]]; why != "" {
			return why
		}
		for _, name := range slices.Sorted(maps.Keys(t.used[next[0]])) { // in one order: the reason is printed
			if _, declared := t.used[name]; declared && !seen[name] {
				seen[name] = true
				next = append(next, name)
			}
		}
	}
	return ""
}
