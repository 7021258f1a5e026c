package schema

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// Docs are the comments of the fields of structs, by the path of the package, the type and the field.
type Docs map[[3]string]string

// ReadDocs reads the comments of the packages of a module: path is the module's, root its directory.
func ReadDocs(path, root string, packages ...string) (Docs, error) {
	docs := make(Docs)
	for _, pkg := range packages {
		files, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				return nil, err
			}
			docs.read(path+"/"+pkg, file)
		}
	}
	return docs, nil
}

func (d Docs) read(pkg string, file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		of, ok := spec.Type.(*ast.StructType)
		if !ok {
			return true
		}
		for _, f := range of.Fields.List {
			text := strings.Join(strings.Fields(f.Doc.Text()+" "+f.Comment.Text()), " ")
			for _, name := range f.Names {
				if text != "" {
					d[[3]string{pkg, spec.Name.Name, name.Name}] = text
				}
			}
		}
		return true
	})
}

// describe sets the descriptions of the properties of s, which is the schema of t.
func (d Docs) describe(s *jsonschema.Schema, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		d.describe(s.Items, t.Elem())
	case reflect.Map:
		d.describe(s.AdditionalProperties, t.Elem())
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			p := s.Properties[name]
			if f.Anonymous || p == nil {
				continue
			}
			owner := t
			if len(f.Index) > 1 {
				owner = t.FieldByIndex(f.Index[:len(f.Index)-1]).Type
			}
			if text := d[[3]string{owner.PkgPath(), owner.Name(), f.Name}]; text != "" {
				p.Description = text
			}
			d.describe(p, f.Type)
		}
	}
}
