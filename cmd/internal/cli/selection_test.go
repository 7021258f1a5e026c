package cli

import (
	"slices"
	"testing"
)

func TestSelection(t *testing.T) {
	counters := []string{"web", "web6", "native/dns4", "native/dns6", "a.b"}
	for _, c := range []struct {
		names, want, unmet []string
	}{
		{nil, counters, nil},
		{[]string{"web"}, []string{"web"}, nil},
		{[]string{"web*"}, []string{"web", "web6"}, nil},
		{[]string{"native*"}, []string{"native/dns4", "native/dns6"}, nil}, // a slash stops nothing
		{[]string{"*/dns[46]", "web"}, []string{"web", "native/dns4", "native/dns6"}, nil},
		{[]string{"a?b"}, []string{"a.b"}, nil},
		{[]string{"z*", "web", "none"}, []string{"web"}, []string{"none", "z*"}},
		{[]string{"WEB"}, nil, []string{"WEB"}},
	} {
		s, err := newSelection(c.names)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, name := range counters {
			if s.has(name) {
				got = append(got, name)
			}
		}
		if !slices.Equal(got, c.want) || !slices.Equal(s.unmet(), c.unmet) {
			t.Errorf("%q selects %q and leaves %q; want %q and %q", c.names, got, s.unmet(), c.want, c.unmet)
		}
	}
	if _, err := newSelection([]string{"[a"}); err == nil {
		t.Error("[a was taken for a pattern")
	}
}
