package schema

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

type inner struct {
	Name  string            `json:"name"`
	Words map[string]string `json:"words,omitempty"`
}

type output struct {
	Schema int      `json:"schema"`
	N      *uint64  `json:"n"` // how many
	List   []inner  `json:"list"`
	Tags   []string `json:"tags"`
	inner
}

func of(t *testing.T, types ...reflect.Type) *jsonschema.Schema {
	t.Helper()
	docs, err := ReadDocs("github.com/flowtally/flowtally", "../../..", "internal/lab/schema")
	if err != nil {
		t.Fatal(err)
	}
	for key, text := range docs {
		t.Log(key, text)
	}
	s, err := Of("title", Docs{{"github.com/flowtally/flowtally/internal/lab/schema", "output", "N"}: "how many"}, types...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestValidateTakesOnlyWhatTheSchemaDescribes(t *testing.T) {
	one, both := of(t, reflect.TypeFor[output]()), of(t, reflect.TypeFor[output](), reflect.TypeFor[inner]())
	if one.Properties["n"].Description != "how many" {
		t.Errorf("n is described by %q", one.Properties["n"].Description)
	}
	const good = `{"schema":1,"n":null,"list":[{"name":"a","words":{"b":"c"}}],"tags":[],"name":"d"}`
	for _, c := range []struct {
		out  string
		of   *jsonschema.Schema
		good bool
	}{
		{good, one, true},
		{good + "\n" + good, one, true},
		{good + `{"name":"a"}`, both, true},
		{good + `{"name":"a"}`, one, false},
		{"", one, false},
		{good[:20], one, false},
		{strings.Replace(good, `"n":null`, `"n":5`, 1), one, true},
		{strings.Replace(good, `"n":null`, `"n":"5"`, 1), one, false},
		{strings.Replace(good, `"n":null,`, ``, 1), one, false},
		{strings.Replace(good, `"n":null`, `"n":null,"m":1`, 1), one, false},
		{strings.Replace(good, `"name":"a"`, `"name":"a","m":1`, 1), one, false},
		{strings.Replace(good, `"tags":[]`, `"tags":null`, 1), one, false},
		{strings.Replace(good, `"schema":1`, `"schema":2`, 1), one, false},
	} {
		if err := Validate(c.of, []byte(c.out)); (err == nil) != c.good {
			t.Errorf("%s: %v", c.out, err)
		}
	}
}

// A later version may add fields, and not take any away.
func TestLostNamesFieldsThatALaterVersionTakesAway(t *testing.T) {
	type more struct {
		output
		Extra int `json:"extra"`
	}
	type fewer struct {
		Schema int     `json:"schema"`
		N      *string `json:"n,omitempty"`
		List   []struct {
			Name int `json:"name"`
		} `json:"list"`
		Name string `json:"name"`
	}
	old := of(t, reflect.TypeFor[output]())
	if lost := Lost(old, of(t, reflect.TypeFor[more]())); lost != nil {
		t.Errorf("a field more: %q", lost)
	}
	want := []string{
		".list[].name was of type [string], and can be integer", ".list[].words is gone",
		".n was always there, and can be left out", ".n was of type [null integer], and can be string",
		".tags was always there, and can be left out", ".tags is gone", ".words is gone",
	}
	if lost := Lost(old, of(t, reflect.TypeFor[fewer]())); !slices.Equal(lost, want) {
		t.Errorf("fields fewer:\n%s\nwant\n%s", strings.Join(lost, "\n"), strings.Join(want, "\n"))
	}
	both := of(t, reflect.TypeFor[output](), reflect.TypeFor[inner]())
	if lost := Lost(of(t, reflect.TypeFor[output]()), of(t, reflect.TypeFor[output](), reflect.TypeFor[fewer]())); lost != nil {
		t.Errorf("a second kind: %v", lost)
	}
	if lost := Lost(of(t, reflect.TypeFor[output]()), of(t, reflect.TypeFor[fewer](), reflect.TypeFor[output]())); len(lost) == 0 {
		t.Error("a second kind in front of the first is no loss")
	}
	if lost := Lost(both, of(t, reflect.TypeFor[output]())); len(lost) == 0 {
		t.Error("a kind of value is gone, and nothing is lost")
	}
}
