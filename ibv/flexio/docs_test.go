package flexio

import (
	"flag"
	"fmt"
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

var update = flag.Bool("update", false, "write the tables of docs/flexio.md")

//go:generate go test -run TestFlexIODocumentIsCurrent -update

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
	for _, path := range append(files, "../../examples/dpa-words/main_linux_test.go") {
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

// fieldTables returns the table of each structure of the reference, in its order. Of a structure with a layout, the
// fields are in the order of their bytes.
func fieldTables(t *testing.T) string {
	var order []string
	refs := make(map[string]refField)
	for _, f := range readRefs(t) {
		if !slices.Contains(order, f.strct) {
			order = append(order, f.strct)
		}
		refs[f.String()] = f
	}
	var b strings.Builder
	for _, structure := range order {
		if _, ok := attributeTables[structure]; ok {
			writeAttributes(&b, structure)
		} else {
			writeLayout(&b, structure, refs)
		}
	}
	return b.String()
}

func writeLayout(b *strings.Builder, structure string, refs map[string]refField) {
	table, twin := queueTables[structure], twins[structure]
	fmt.Fprintf(b, "### `%s`\n\n", structure)
	if table.union {
		b.WriteString("One of its segments.\n\n| reference | structure | test |\n| --- | --- | --- |\n")
		for _, f := range table.fields {
			fmt.Fprintf(b, "| `%s` | [`%s`](#%s) | TestSQESegHoldsExactlyOneSegment |\n", f.name, f.of, f.of)
		}
		b.WriteString("\n")
		return
	}
	header := "no twin in mlx5dv.h"
	if twin.c != "" {
		header = "`" + twin.c + "` of mlx5dv.h"
	}
	fmt.Fprintf(b, "%d bytes, %s.\n\n", table.size, header)
	b.WriteString("| byte | bits | reference | its type | its place | mlx5dv.h | test |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, f := range table.fields {
		theirs, place, tests := "", "no layout given", []string{"TestRowsOfQueueStructuresLeaveNoHole"}
		if c := twin.fields[f.name]; c != "" {
			theirs, tests = "`"+c+"`", []string{"TestStructsEqualTheHeader"}
		}
		if f.ref != "" {
			place, tests = f.ref, append(slices.DeleteFunc(tests, func(s string) bool { return theirs == "" }), "TestFieldsLieWhereTheReferenceHasThem")
		}
		ctype := refs[structure+"."+f.name].ctype
		fmt.Fprintf(b, "| %02x | %d | `%s` | %s | %s | %s | %s |\n", f.first/8, f.width, f.name, ctype, place, theirs, strings.Join(tests, ", "))
	}
	b.WriteString("\n")
}

func writeAttributes(b *strings.Builder, structure string) {
	fmt.Fprintf(b, "### `%s`\n\n| reference | its type | values | unit | test |\n| --- | --- | --- | --- | --- |\n", structure)
	for _, f := range attributeTables[structure].fields {
		tests := []string{"TestValidAttributesAreAccepted"}
		name := structure + "." + f.name
		if slices.ContainsFunc(append(brokenRules, brokenQueueRules...), func(r brokenRule) bool { return r.field == name || strings.HasPrefix(r.field, name+".") }) {
			tests = append(tests, "TestEachBrokenRuleIsReportedAlone")
		}
		if structure == "flexio_cq_attr" {
			tests = append(tests, "TestCQAttrSetsOnlyItsOwnBits")
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", f.name, strings.ReplaceAll(f.ref, "*", "\\*"), accepted(f), f.unit, strings.Join(tests, ", "))
	}
	b.WriteString("\n")
}

// accepted says which values an attribute takes.
func accepted(f field) string {
	switch {
	case f.names != nil:
		return strings.TrimPrefix(f.spellNames(), "give a number, or one of: ")
	case f.kind == number && f.width == 1:
		return "0, 1"
	case f.kind == number:
		return fmt.Sprintf("%d bits", f.width)
	case f.kind == octets:
		return "bytes"
	case f.kind == text:
		return fmt.Sprintf("a string of at most %d bytes", maxNameLen-1)
	case f.kind == object:
		return "an object's number"
	case f.kind == list:
		return "a slice"
	case f.kind == ignored:
		return "any: ignored"
	case f.align > 0:
		return fmt.Sprintf("[`%s`](#%s), at a multiple of %d", f.of, f.of, f.align)
	}
	return fmt.Sprintf("[`%s`](#%s)", f.of, f.of)
}

// contextTable says which fields of the command each attribute of a CQ sets: it sets the
// attribute and looks.
func contextTable(t *testing.T) string {
	plain, err := createChanged(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	sets := make(map[string][]string)
	for _, tt := range attrBits {
		in, err := createChanged(tt.change, tt.place)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range changed(t, plain, in) {
			if !slices.Contains(sets[tt.field], s) {
				sets[tt.field] = append(sets[tt.field], s)
			}
		}
	}
	var b strings.Builder
	b.WriteString("| flexio_cq_attr | field: first bit, bits | test |\n| --- | --- | --- |\n")
	for _, f := range attributeTables["flexio_cq_attr"].fields {
		what := strings.Join(sets[f.name], "; ")
		if what == "" {
			what = "none: the library's, after the creation"
		}
		fmt.Fprintf(&b, "| `%s` | %s | TestCQAttrSetsOnlyItsOwnBits |\n", f.name, what)
	}
	return b.String()
}

// changed are the fields of the context, and of the command around it, in which two commands differ.
func changed(t *testing.T, a, b []byte) (out []string) {
	t.Helper()
	var decoded [2]Values
	for i, command := range [][]byte{a, b} {
		var err error
		if decoded[i], err = Decode(createCQIn, command); err != nil {
			t.Fatal(err)
		}
	}
	compare := func(of, prefix string, x, y Values) {
		for _, f := range commandTables[of].fields {
			if f.kind != inner && x.Uint(f.name) != y.Uint(f.name) {
				out = append(out, fmt.Sprintf("%s`%s`: %#x, %d", prefix, f.name, f.first, f.width))
			}
		}
	}
	compare(cqContext, "", decoded[0]["cq_context"].(Values), decoded[1]["cq_context"].(Values))
	compare(createCQIn, "CREATE_CQ ", decoded[0], decoded[1])
	return out
}
