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

// registry is the file that declares the codes of all conditions.
const registry = "conditions.go"

// TestConditionsAreRegistered: a condition is raised with a code of the registry of package dataplane, and each
// code of the registry is raised. docs/conditions.md is generated from the registry.
func TestConditionsAreRegistered(t *testing.T) {
	all := packages(t)
	raised := make(map[string]bool)
	for name, p := range all {
		if name != "plugin" && !strings.HasPrefix(name, "dataplane/engine") {
			continue
		}
		for _, f := range p.GoFiles {
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, f), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, code := range codes(file) {
				text := types.ExprString(code)
				fromWire := text == "dataplane.ConditionCode(p.GetCode())"
				toWire := text == "text(string(c.Code))" || text == "text(string(e.Code))"
				ofCondition := text == "c.Code" || text == "c.down.Code" // in its event
				if fromWire || toWire || ofCondition {
					continue
				}
				constant, ok := strings.CutPrefix(text, "dataplane.Code")
				if raised[constant] = true; !ok {
					t.Errorf("%s: a condition has the code %s: use a constant of dataplane/%s", fset.Position(code.Pos()), text, registry)
				}
			}
		}
	}
	declared := constants(t, filepath.Join(all["dataplane"].Dir, registry))
	for _, constant := range declared {
		if !raised[constant] {
			t.Errorf("no package raises dataplane.Code%s", constant)
		}
	}
	if len(declared) < 20 {
		t.Errorf("only %d codes were found", len(declared))
	}
}

// codes returns the values that a file gives to fields of the name Code.
func codes(file *ast.File) (found []ast.Expr) {
	ast.Inspect(file, func(n ast.Node) bool {
		found = append(found, valuesOf("Code", n)...)
		return true
	})
	return found
}

// constants returns the names of the codes that a file declares, without their prefix.
func constants(t *testing.T, path string) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			for _, id := range spec.Names {
				if constant, ok := strings.CutPrefix(id.Name, "Code"); ok {
					names = append(names, constant)
				}
			}
		}
		return true
	})
	return names
}
