package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// fixSource is a package with the texts of its next steps.
type fixSource struct {
	functions map[string][]*ast.FuncDecl // by name; methods of several types may have one
	constants map[string]ast.Expr
	fields    map[string][]givenTo // what literals give to fields of structs, by the name of the field
	values    map[string]bool      // the functions whose parameter of the name fix is asked for now
}

// givenTo is a value that a struct literal gives to a field, in a function or outside of all.
type givenTo struct {
	value ast.Expr
	in    *ast.FuncDecl
}

// textFields are the fields, beside Fix, that hold the text of a next step until it is printed.
var textFields = []string{"fix", "install", "step"}

// fixTexts returns the texts that a package gives to fields of the name Fix. A part that
// is known at run time alone is "…". A field that passes another one on has no text of its own.
func fixTexts(t *testing.T, p pkg) []string {
	t.Helper()
	s := fixSource{functions: make(map[string][]*ast.FuncDecl), constants: make(map[string]ast.Expr), fields: make(map[string][]givenTo), values: make(map[string]bool)}
	var files []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
		s.note(file)
	}

	order := make(map[string][]string)
	for _, file := range files {
		noteStructs(file, order)
	}
	for _, file := range files {
		s.noteFields(file, order)
	}

	texts := make(map[string]bool)
	for _, given := range s.fields["step"] { // an error of package plugin, which doctor asks for its next step
		for _, text := range s.texts(given.value, given.in) {
			texts[text] = true
		}
	}
	for _, file := range files {
		for _, d := range file.Decls {
			f, _ := d.(*ast.FuncDecl)
			ast.Inspect(d, func(n ast.Node) bool {
				for _, value := range valuesOf("Fix", n) {
					for _, text := range s.texts(value, f) {
						texts[text] = true
					}
				}
				return true
			})
		}
	}
	delete(texts, "…")
	delete(texts, "")
	return slices.Sorted(maps.Keys(texts))
}

// verb is a value in a format.
var verb = regexp.MustCompile(`%[a-z]`)

// note notes the functions and the constants of a file.
func (s *fixSource) note(file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Body == nil { // in assembler
				return false
			}
			s.functions[n.Name.Name] = append(s.functions[n.Name.Name], n)
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if i < len(n.Values) {
					s.constants[name.Name] = n.Values[i]
				}
			}
		}
		return true
	})
}

// fieldNames returns the names of the fields of a struct, in order; "" for one that is embedded.
func fieldNames(s *ast.StructType) (names []string) {
	for _, f := range s.Fields.List {
		if len(f.Names) == 0 {
			names = append(names, "")
		}
		for _, id := range f.Names {
			names = append(names, id.Name)
		}
	}
	return names
}

// noteStructs notes the fields of the named structs of a file, in order.
func noteStructs(file *ast.File, order map[string][]string) {
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			if s, ok := spec.Type.(*ast.StructType); ok {
				order[spec.Name.Name] = fieldNames(s)
			}
		}
		return true
	})
}

// noteFields notes the values that the literals of structs in a file give to textFields.
func (s *fixSource) noteFields(file *ast.File, order map[string][]string) {
	for _, d := range file.Decls {
		f, _ := d.(*ast.FuncDecl)
		ast.Inspect(d, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			switch typ := lit.Type.(type) {
			case *ast.Ident:
				s.noteLiteral(lit, order[typ.Name], f)
			case *ast.ArrayType:
				if elem, ok := typ.Elt.(*ast.StructType); ok {
					for _, e := range lit.Elts {
						if row, ok := e.(*ast.CompositeLit); ok {
							s.noteLiteral(row, fieldNames(elem), f)
						}
					}
				}
			}
			return true
		})
	}
}

// noteLiteral notes the values of one literal, of a struct with these fields.
func (s *fixSource) noteLiteral(lit *ast.CompositeLit, names []string, in *ast.FuncDecl) {
	for i, e := range lit.Elts {
		name, value := "", e
		if pair, ok := e.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok {
				name = key.Name
			}
			value = pair.Value
		} else if i < len(names) {
			name = names[i]
		}
		if slices.Contains(textFields, name) {
			s.fields[name] = append(s.fields[name], givenTo{value, in})
		}
	}
}

// valuesOf returns the values that a node gives to a field of that name.
func valuesOf(field string, n ast.Node) (values []ast.Expr) {
	switch n := n.(type) {
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && key.Name == field {
			values = append(values, n.Value)
		}
	case *ast.AssignStmt:
		for i, to := range n.Lhs {
			if at, ok := to.(*ast.SelectorExpr); ok && at.Sel.Name == field && len(n.Rhs) == len(n.Lhs) {
				values = append(values, n.Rhs[i])
			}
		}
	}
	return values
}

// texts returns the texts that an expression within a function can have.
func (s *fixSource) texts(e ast.Expr, in *ast.FuncDecl) []string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil {
			return []string{verb.ReplaceAllString(text, "…")}
		}
	case *ast.BinaryExpr:
		var all []string
		for _, a := range s.texts(e.X, in) {
			for _, b := range s.texts(e.Y, in) {
				all = append(all, a+b)
			}
		}
		return all
	case *ast.ParenExpr:
		return s.texts(e.X, in)
	case *ast.IndexExpr:
		return s.texts(e.X, in)
	case *ast.CompositeLit: // a map of texts
		var all []string
		for _, x := range e.Elts {
			if pair, ok := x.(*ast.KeyValueExpr); ok {
				all = append(all, s.texts(pair.Value, in)...)
			}
		}
		return all
	case *ast.SelectorExpr:
		var all []string
		for _, given := range s.fields[e.Sel.Name] {
			all = append(all, s.texts(given.value, given.in)...)
		}
		if len(all) > 0 {
			return all
		}
	case *ast.Ident:
		return s.named(e.Name, in)
	case *ast.CallExpr:
		return s.called(e, in)
	}
	return []string{"…"}
}

// named returns the texts of a variable, a parameter or a constant.
func (s *fixSource) named(name string, in *ast.FuncDecl) []string {
	var all []string
	if in != nil && in.Body != nil {
		ast.Inspect(in.Body, func(n ast.Node) bool {
			assign, ok := n.(*ast.AssignStmt)
			if !ok {
				return true
			}
			for i, to := range assign.Lhs {
				id, ok := to.(*ast.Ident)
				if !ok || id.Name != name {
					continue
				}
				if len(assign.Lhs) == len(assign.Rhs) {
					all = append(all, s.texts(assign.Rhs[i], in)...)
				} else if call, ok := assign.Rhs[0].(*ast.CallExpr); ok {
					all = append(all, s.results(call, i)...)
				}
			}
			return true
		})
		if at := parameterAt(in, name); at >= 0 {
			all = append(all, s.arguments(in.Name.Name, at)...)
		}
	}
	if value, ok := s.constants[name]; ok && len(all) == 0 {
		all = s.texts(value, in)
	}
	if len(all) == 0 {
		return []string{"…"}
	}
	return all
}

// parameterAt returns the position of a parameter, or -1.
func parameterAt(f *ast.FuncDecl, name string) int {
	at := 0
	for _, field := range f.Type.Params.List {
		for _, id := range field.Names {
			if id.Name == name {
				return at
			}
			at++
		}
	}
	return -1
}

// arguments returns the texts that the package gives to a parameter of its function.
func (s *fixSource) arguments(function string, at int) (all []string) {
	if s.values[function] {
		return nil // it calls itself
	}
	s.values[function] = true
	defer delete(s.values, function)
	for _, list := range s.functions {
		for _, f := range list {
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && calledName(call) == function && at < len(call.Args) {
					all = append(all, s.texts(call.Args[at], f)...)
				}
				return true
			})
		}
	}
	return slices.DeleteFunc(all, func(text string) bool { return text == "" }) // no value
}

func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// called returns the texts that a call returns.
func (s *fixSource) called(call *ast.CallExpr, in *ast.FuncDecl) []string {
	if name := calledName(call); name == "Sprintf" {
		return s.texts(call.Args[0], in)
	}
	return s.results(call, 0)
}

// results returns the texts of one result of a call.
func (s *fixSource) results(call *ast.CallExpr, at int) (all []string) {
	function := calledName(call)
	if s.values["="+function] {
		return []string{"…"}
	}
	s.values["="+function] = true
	defer delete(s.values, "="+function)
	for _, f := range s.functions[function] {
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if r, ok := n.(*ast.ReturnStmt); ok && at < len(r.Results) {
				all = append(all, s.texts(r.Results[at], f)...)
			}
			return true
		})
	}
	if len(all) == 0 {
		return []string{"…"}
	}
	return all
}
