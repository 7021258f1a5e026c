package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdJSON implements "json FILE SHAPE…". FILE must have at least one JSON value, and each must have exactly one of the
// shapes (see shapeOf).
func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: json FILE SHAPE…")
	}
	var want []string
	for _, file := range args[1:] {
		want = append(want, strings.Join(strings.Fields(ts.ReadFile(file)), ""))
	}
	dec := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	for n := 0; ; n++ {
		var v any
		switch err := dec.Decode(&v); {
		case err == io.EOF && n > 0:
			return
		case err != nil:
			ts.Fatalf("value %d: %v", n+1, err)
		}
		if got := shapeOf(v); !slices.Contains(want, got) {
			ts.Fatalf("value %d has the shape\n%s\nwant\n%s", n+1, got, strings.Join(want, "\nor\n"))
		}
	}
}

// shapeOf returns the shape of a decoded JSON value: the keys in order of name, with types in place of values. An
// array has the different shapes of its elements, joined by "|".
func shapeOf(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var b bytes.Buffer
		for i, k := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "%s:%s", k, shapeOf(v[k]))
		}
		return "{" + b.String() + "}"
	case []any:
		shapes := make([]string, len(v))
		for i, e := range v {
			shapes[i] = shapeOf(e)
		}
		slices.Sort(shapes)
		return "[" + strings.Join(slices.Compact(shapes), "|") + "]"
	case string:
		return "string"
	case float64:
		return "number"
	case bool:
		return "bool"
	}
	return "null"
}

func TestShapeOfNamesFieldsAndTypes(t *testing.T) {
	var v any
	if err := json.Unmarshal([]byte(`{"b":[1,null,2],"a":{"s":"x","t":true},"c":[]}`), &v); err != nil {
		t.Fatal(err)
	}
	if got, want := shapeOf(v), "{a:{s:string,t:bool},b:[null|number],c:[]}"; got != want {
		t.Errorf("shape %s, want %s", got, want)
	}
}
