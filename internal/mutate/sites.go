package main

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// A Mutant is one change of one place in a source file.
type Mutant struct {
	File   string // slash-separated, relative to the module's root
	Func   string // "Writer.Publish"
	Change string // "a < b => a <= b", unique within Func: a repeated one has " #2" behind it

	start, end int // bytes of the file that text replaces
	line       int // of start, from 1
	text       string
}

// String returns the name by which docs/testing.md lists the mutant. It does
// not contain the line, so that it stays valid while code around it changes.
func (m Mutant) String() string { return m.File + "  " + m.Func + "  " + m.Change }

// Package returns the directory of the mutant's package.
func (m Mutant) Package() string { return filepath.ToSlash(filepath.Dir(m.File)) }

// testPackages returns the directories of the packages whose tests may kill the mutant: its own where it has tests, its
// user where that has them, and for a part of a whole the whole.
func (m Mutant) testPackages(root string) (dirs []string) {
	if tested(root, m.Package()) {
		dirs = append(dirs, m.Package())
	}
	if user := users[m.Package()]; user != "" {
		dirs = append(dirs, user)
	}
	for _, whole := range wholes {
		if strings.HasPrefix(m.Package(), whole+"/") {
			dirs = append(dirs, whole)
		}
	}
	return dirs
}

const engine = "dataplane/engine"

// wholes are the packages whose tests run the packages in their directories, too: the engine's tests run whole
// instances, and plugin's run whole processes.
var wholes = []string{engine, "plugin"}

// users are the packages whose tests run a package that has none.
var users = map[string]string{"shm/words": engine + "/words"} // both ends of one socket

// tested reports whether the package in root/dir has tests.
func tested(root, dir string) bool {
	files, _ := filepath.Glob(filepath.Join(root, dir, "*_test.go")) // the pattern is valid
	return len(files) > 0
}

// apply returns src with the mutant's change.
func (m Mutant) apply(src []byte) []byte {
	return []byte(string(src[:m.start]) + m.text + string(src[m.end:]))
}

// swaps lists the operator that replaces each binary operator.
var swaps = map[token.Token]string{
	token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">", token.EQL: "!=", token.NEQ: "==",
	token.LAND: "||", token.LOR: "&&", token.ADD: "-", token.SUB: "+", token.MUL: "/", token.QUO: "*",
	token.REM: "*", token.AND: "|", token.OR: "&", token.XOR: "&", token.AND_NOT: "&", token.SHL: ">>", token.SHR: "<<",
}

// assigns lists the operator that replaces each assignment operator.
var assigns = map[token.Token]string{
	token.ADD_ASSIGN: "-=", token.SUB_ASSIGN: "+=", token.OR_ASSIGN: "&=", token.AND_ASSIGN: "|=", token.AND_NOT_ASSIGN: "|=",
}

// generated matches the line that marks a generated file (go.dev/s/generatedcode).
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// sites returns every mutant of the package in root/dir, in the order of the
// sources. Files of other systems and generated files have no mutants.
func sites(root, dir string) ([]Mutant, error) {
	entries, err := os.ReadDir(filepath.Join(root, dir))
	if err != nil {
		return nil, fmt.Errorf("listing package %s: %w", dir, err)
	}
	var all []Mutant
	for _, e := range entries {
		name := e.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		if match, err := build.Default.MatchFile(filepath.Join(root, dir), name); err != nil || !match {
			continue
		}
		src, err := os.ReadFile(filepath.Join(root, dir, name))
		if err != nil {
			return nil, fmt.Errorf("reading package %s: %w", dir, err)
		}
		if generated.Match(src) {
			continue
		}
		of, err := sitesOfFile(filepath.ToSlash(filepath.Join(dir, name)), src)
		if err != nil {
			return nil, err
		}
		all = append(all, of...)
	}
	return all, nil
}

// sitesOfFile returns the mutants of one file with the text src.
func sitesOfFile(name string, src []byte) ([]Mutant, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parsing %s: %w", name, err)
	}
	var all []Mutant
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		s := siteFinder{fset: fset, src: src, file: name, fn: funcName(fn), seen: make(map[string]int)}
		ast.Inspect(fn.Body, s.visit)
		all = append(all, s.found...)
	}
	return all, nil
}

func funcName(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return fn.Name.Name
	}
	typ := fn.Recv.List[0].Type
	if p, ok := typ.(*ast.StarExpr); ok {
		typ = p.X
	}
	if g, ok := typ.(*ast.IndexExpr); ok {
		typ = g.X
	}
	if id, ok := typ.(*ast.Ident); ok {
		return id.Name + "." + fn.Name.Name
	}
	return fn.Name.Name
}

// siteFinder collects the mutants of one function.
type siteFinder struct {
	fset     *token.FileSet
	src      []byte
	file, fn string
	seen     map[string]int // how often a change has this text
	found    []Mutant
}

// visit adds the mutants of one node. It changes no logging: a test of a log line
// would hold its text, not a behaviour.
func (s *siteFinder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ExprStmt:
		if call, ok := n.X.(*ast.CallExpr); ok {
			if logs(call) {
				return false
			}
			s.add(n, n.Pos(), n.End(), "")
		}
	case *ast.DeferStmt:
		s.add(n, n.Pos(), n.End(), "")
	case *ast.BinaryExpr:
		if to, ok := swaps[n.Op]; ok {
			s.add(n, n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), to)
		}
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			s.add(n, n.OpPos, n.OpPos+1, "")
		}
	case *ast.IfStmt:
		cond := s.text(n.Cond.Pos(), n.Cond.End())
		s.add(n.Cond, n.Cond.Pos(), n.Cond.End(), "false && ("+cond+")")
		s.add(n.Cond, n.Cond.Pos(), n.Cond.End(), "true || ("+cond+")")
	case *ast.IncDecStmt:
		s.add(n, n.TokPos, n.TokPos+2, map[token.Token]string{token.INC: "--", token.DEC: "++"}[n.Tok])
	case *ast.AssignStmt:
		if to, ok := assigns[n.Tok]; ok {
			s.add(n, n.TokPos, n.TokPos+token.Pos(len(n.Tok.String())), to)
		}
		if n.Tok == token.ASSIGN && len(n.Lhs) == 1 && len(n.Rhs) == 1 {
			s.add(n, n.Lhs[0].Pos(), n.Lhs[0].End(), "_")
		}
	case *ast.BasicLit:
		if v, err := strconv.ParseUint(n.Value, 0, 32); n.Kind == token.INT && err == nil {
			s.add(n, n.Pos(), n.End(), strconv.FormatUint(v+1, 10))
		}
	case *ast.ReturnStmt:
		if len(n.Results) > 0 {
			if last, ok := n.Results[len(n.Results)-1].(*ast.Ident); ok && last.Name == "err" {
				s.add(n, last.Pos(), last.End(), "nil")
			}
		}
	}
	return true
}

// add notes the mutant that replaces the bytes from start to end, which lie in n, by text.
func (s *siteFinder) add(n ast.Node, start, end token.Pos, text string) {
	before := s.text(n.Pos(), n.End())
	from, to := int(start-n.Pos()), int(end-n.Pos())
	after := before[:from] + text + before[to:]
	if after == "" {
		after = "removed"
	}
	change := brief(before) + " => " + brief(after)
	s.seen[change]++
	if k := s.seen[change]; k > 1 {
		change += " #" + strconv.Itoa(k)
	}
	at := s.fset.Position(start)
	s.found = append(s.found, Mutant{
		File: s.file, Func: s.fn, Change: change,
		start: at.Offset, end: s.fset.Position(end).Offset, line: at.Line, text: text,
	})
}

func (s *siteFinder) text(from, to token.Pos) string {
	return string(s.src[s.fset.Position(from).Offset:s.fset.Position(to).Offset])
}

// brief returns src on one line of at most 70 bytes, without runs of spaces:
// two spaces separate the columns of the list.
func brief(src string) string {
	src = strings.Join(strings.Fields(src), " ")
	if len(src) > 70 {
		src = strings.ToValidUTF8(src[:67], "") + "..."
	}
	return src
}

// logs tells whether a call writes a log line.
func logs(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	switch sel.Sel.Name {
	case "Debug", "Info", "Warn", "Error":
	default:
		return false
	}
	switch x := sel.X.(type) {
	case *ast.Ident:
		return x.Name == "log" || x.Name == "logger" || x.Name == "l"
	case *ast.SelectorExpr:
		return x.Sel.Name == "log" || x.Sel.Name == "logger" || x.Sel.Name == "Logger"
	}
	return false
}
