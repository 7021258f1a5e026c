package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// methodFiles is the number of files that may hold the methods of one type. Files that differ only in the
// operating system are one.
const methodFiles = 4

// scattered are the types whose methods may be in more files, with the reason.
var scattered = map[string]string{
	"configs.decoder":              "each file decodes one section of the document",
	"dataplane/flow.Match":         "each file is one walk over all layers: parse, format, check, expand",
	"ibv.Context":                  "each file is one object of libibverbs and the function that makes it",
	"ibv.PD":                       "as ibv.Context",
	"ibv.QP":                       "as ibv.Context",
	"internal/bench/flowrows.site": "each file is one step of the measurement",
	"shm.Reader":                   "shm stays whole",
	"shm.Writer":                   "shm stays whole",
	"shm.view":                     "shm stays whole",
	"xdp.RuleSet":                  "xdp stays whole",
}

// systemOf is the ending of a file that is built for some systems.
var systemOf = regexp.MustCompile(`_(linux|other|unix|windows|darwin|stub|cgo|amd64|arm64)$`)

// TestMethodsOfATypeAreTogether: a type whose methods are in many files is two types.
func TestMethodsOfATypeAreTogether(t *testing.T) {
	crowded := make(map[string]bool)
	for name, p := range packages(t) {
		for typ, in := range methods(t, p) {
			full := name + "." + typ
			if len(in) <= methodFiles {
				continue
			}
			crowded[full] = true
			if scattered[full] == "" {
				t.Errorf("the methods of %s are in %d files, more than %d: make it two types", full, len(in), methodFiles)
			}
		}
	}
	for full := range scattered {
		if !crowded[full] {
			t.Errorf("the methods of %s are in at most %d files: strike it from the list", full, methodFiles)
		}
	}
}

// methods returns the files that have methods, by type.
func methods(t *testing.T, p pkg) map[string]map[string]bool {
	t.Helper()
	files := make(map[string]map[string]bool)
	for _, f := range append(slices.Clone(p.GoFiles), p.IgnoredGoFiles...) {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		src, err := os.ReadFile(filepath.Join(p.Dir, f))
		if err != nil {
			t.Fatal(err)
		}
		if generated(src) {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), f, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		base := strings.TrimSuffix(f, ".go")
		for systemOf.MatchString(base) {
			base = systemOf.ReplaceAllString(base, "")
		}
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				typ := receiver(fn.Recv.List[0].Type)
				if files[typ] == nil {
					files[typ] = make(map[string]bool)
				}
				files[typ][base] = true
			}
		}
	}
	return files
}

// receiver returns the name of the type of a receiver.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
