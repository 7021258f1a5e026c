package flexio

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of docs/flexio.md")

const docPath = "../../docs/flexio.md"

// The tables of docs/flexio.md are generated from the code and the list of the reference's fields.
func TestFlexIODocumentIsCurrent(t *testing.T) {
	doc, err := os.ReadFile(docPath)
	if err != nil {
		t.Fatal(err)
	}
	want := string(doc)
	for name, text := range map[string]string{"fields": fieldTables(t), "context": contextTable(t)} {
		begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->\n"
		before, rest, ok := strings.Cut(want, begin)
		_, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Fatalf("%s has no place for %s", docPath, name)
		}
		want = before + begin + text + end + after
	}
	if want == string(doc) {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the code says: go test ./ibv/flexio -run TestFlexIODocumentIsCurrent -update", docPath)
	}
	if err := os.WriteFile(docPath, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFlexIODocumentNamesExistingTests(t *testing.T) {
	doc, err := os.ReadFile(docPath)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	tests := make(map[string]bool)
	for _, path := range files {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				tests[fn.Name.Name] = true
			}
		}
	}
	named := regexp.MustCompile(`\b(Test|Fuzz)[A-Z]\w+`).FindAllString(string(doc), -1)
	for _, name := range slices.Compact(slices.Sorted(slices.Values(named))) {
		if !tests[name] {
			t.Errorf("%s names %s, which is not there", docPath, name)
		}
	}
	if len(named) < 229 {
		t.Errorf("%s names tests %d times, and has 229 fields", docPath, len(named))
	}
}

// fieldTables returns a table for each structure of the reference, in its order, with every field;
// fields of queue structures are in the order of their bytes.
func fieldTables(t *testing.T) string {
	fields := make(map[string][]refField)
	var order []string
	for _, f := range readRefs(t) {
		if fields[f.strct] == nil {
			order = append(order, f.strct)
		}
		fields[f.strct] = append(fields[f.strct], f)
	}
	var b strings.Builder
	for _, strct := range order {
		typ := goTypes[strct]
		if size := binarySize(typ); size > 0 {
			queueTable(t, &b, strct, typ, size, fields[strct])
		} else {
			hostTable(t, &b, strct, typ, fields[strct])
		}
	}
	return b.String()
}

func queueTable(t *testing.T, b *strings.Builder, strct string, typ reflect.Type, size int, fields []refField) {
	twin, theirs := "", map[string]string(nil)
	for _, s := range structs {
		if reflect.TypeOf(s.v) == typ {
			twin, theirs = s.c, s.fields
		}
	}
	header := "no twin in mlx5dv.h"
	if twin != "" {
		header = "`" + twin + "` of mlx5dv.h"
	}
	fmt.Fprintf(b, "### `%s`\n\n`flexio.%s`, %d bytes, %s.\n\n", strct, typ.Name(), size, header)
	b.WriteString("| byte | reference | its place | Go | type | mlx5dv.h | test |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	type row struct {
		at   int
		text string
	}
	var rows []row
	for _, f := range fields {
		g, err := find(f)
		if err != nil {
			t.Fatal(err)
		}
		name, field, tests := f.name, "", []string{}
		if n, ok := nested[f.String()+" "+f.ctype]; ok {
			name = n
		}
		if c := theirs[g.text]; c != "" {
			field, tests = "`"+c+"`", append(tests, "TestStructsEqualTheHeader")
		}
		place := "no layout given"
		if f.place != "-" {
			place, tests = f.place, append(tests, "TestFieldsLieWhereTheReferenceHasThem")
		}
		rows = append(rows, row{g.at, fmt.Sprintf("| %02x | `%s` | %s | `%s` | %s | %s | %s |\n", g.at, name, place, g.text, g.typ, field, strings.Join(tests, ", "))})
	}
	slices.SortStableFunc(rows, func(a, b row) int { return a.at - b.at })
	for _, r := range rows {
		b.WriteString(r.text)
	}
	b.WriteString("\n")
}

func hostTable(t *testing.T, b *strings.Builder, strct string, typ reflect.Type, fields []refField) {
	fmt.Fprintf(b, "### `%s`\n\n`flexio.%s`.\n\n", strct, typ.Name())
	b.WriteString("| reference | its type | Go | type | test |\n| --- | --- | --- | --- | --- |\n")
	for _, f := range fields {
		g, err := find(f)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(b, "| `%s` | %s | `%s` | %s | %s |\n", f.name, strings.ReplaceAll(f.ctype, "*", "\\*"), g.text, strings.ReplaceAll(g.typ, "*", "\\*"), strings.Join(hostTests(strct, f.name), ", "))
	}
	b.WriteString("\n")
}

// hostTests are the tests that cover a field of configuration: the tables that they go
// through say so.
func hostTests(strct, field string) (tests []string) {
	if strct == "flexio_dev_sqe_seg" {
		return []string{"TestSQESegHoldsExactlyOneSegment"}
	}
	name := strct + "." + field
	has := func(f string) bool { return f == name || strings.HasPrefix(f, name+".") }
	for _, parent := range []string{"flexio_wq_attr.rq.", "flexio_wq_attr.sq."} {
		if p := strings.TrimSuffix(parent, "."); strct == strings.Replace(p, "flexio_wq_attr.", "flexio_wq_", 1)+"_attr" {
			has = func(f string) bool { return f == parent+field }
		}
	}
	if slices.ContainsFunc(append(rules, queueRules...), func(r rule) bool { return has(r.field) }) {
		tests = append(tests, "TestEachBrokenRuleIsReportedAlone")
	}
	if !neverSet[name] {
		tests = append(tests, "TestValidAttributesAreAccepted")
	}
	if strct == "flexio_cq_attr" {
		tests = append(tests, "TestCQAttrSetsOnlyItsOwnBits")
	}
	return tests
}

// contextTable says which fields of the command each attribute of a CQ sets: it sets the
// attribute and looks.
func contextTable(t *testing.T) string {
	plain, err := plainCQ.CreateCQ(placement)
	if err != nil {
		t.Fatal(err)
	}
	sets := make(map[string][]string)
	for _, tt := range attrBits {
		a, p := plainCQ, placement
		tt.change(&a, &p)
		in, err := a.CreateCQ(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range slices.Concat(changed(plain.CQContext, in.CQContext, ""), changed(plain, in, "CREATE_CQ ")) {
			if !slices.Contains(sets[tt.field], s) {
				sets[tt.field] = append(sets[tt.field], s)
			}
		}
	}
	var b strings.Builder
	b.WriteString("| flexio_cq_attr | field: first bit, bits | test |\n| --- | --- | --- |\n")
	for _, sf := range reflect.VisibleFields(reflect.TypeFor[CQAttr]()) {
		ref := sf.Tag.Get("ref")
		what := strings.Join(sets[ref], "; ")
		if what == "" {
			what = "none: the library's, after the creation"
		}
		fmt.Fprintf(&b, "| `%s` | %s | TestCQAttrSetsOnlyItsOwnBits |\n", ref, what)
	}
	return b.String()
}

// changed are the fields, but structures, in which two values differ.
func changed[T any](a, b T, prefix string) (out []string) {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for _, sf := range reflect.VisibleFields(x.Type()) {
		if sf.Type.Kind() == reflect.Struct || x.FieldByIndex(sf.Index).Equal(y.FieldByIndex(sf.Index)) {
			continue
		}
		first, width := bitsOf(sf)
		out = append(out, fmt.Sprintf("%s`%s`: %#x, %d", prefix, sf.Name, first, width))
	}
	return out
}
