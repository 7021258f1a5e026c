package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// listing are the functions that may list all links, and why their cost is paid once.
var listing = map[string]string{
	"cmd/internal/cli/warnings.go missingInterfaces":   "once in a command",
	"cmd/internal/cli/interfaces.go interfaceNames":    "once in a command",
	"cmd/internal/cli/doctor.go present":               "once in a command",
	"cmd/internal/cli/interfaces.go hintInterface":     "once in a command",
	"cmd/internal/selftest/function_linux.go function": "once in a command",
	"cmd/internal/selftest/run_linux.go testInterface": "once in a command",
	"dataplane/engine/backend/patterns.go Interfaces":  "once in a control call",
	"dataplane/engine/probe.go up":                     "once in a probe",
	"plugin/start_bound.go configureTimeout":           "once at a start",
	"xdp/interfaces.go Listed":                         "in the error of a start, once",
	"xdp/links/watch_linux.go List":                    "once in a check",
}

// TestNoLinkIsLookedUpInAList: net.InterfaceByName and its like ask the kernel for every link and keep one, so a loop over
// links with such a call costs the square of their number. One link is asked for by netlink.LinkByName or LinkByIndex.
func TestNoLinkIsLookedUpInAList(t *testing.T) {
	dumps := map[string]bool{
		"net.InterfaceByName": true, "net.InterfaceByIndex": true, "net.Interfaces": true, "net.InterfaceAddrs": true,
		"netlink.LinkList": true, "netlink.LinkByAlias": true, "netlink.AddrList": true,
	}
	unused := make(map[string]bool)
	for name := range listing {
		unused[name] = true
	}
	root, files := tracked(t)
	for _, f := range files {
		if filepath.Ext(f) != ".go" || strings.HasSuffix(f, "_test.go") || strings.HasPrefix(f, "internal/") {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, filepath.Join(root, f), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			name := f
			if fn, is := d.(*ast.FuncDecl); is {
				name += " " + fn.Name.Name
			}
			ast.Inspect(d, func(n ast.Node) bool {
				sel, is := n.(*ast.SelectorExpr)
				if !is {
					return true
				}
				of, is := sel.X.(*ast.Ident)
				if call := ""; is {
					if call = of.Name + "." + sel.Sel.Name; dumps[call] {
						delete(unused, name)
						if listing[name] == "" {
							t.Errorf("%s: %s lists all links: ask for one by netlink.LinkByName or LinkByIndex", fset.Position(sel.Pos()), call)
						}
					}
				}
				return true
			})
		}
	}
	for name := range unused {
		t.Errorf("%s lists no links any more: take it off this list", name)
	}
}
