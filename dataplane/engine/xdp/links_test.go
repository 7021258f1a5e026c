package xdp

import (
	"testing"

	"github.com/flowtally/flowtally/xdp/links"
)

// Events of different interfaces are handled together, but an interface that goes and comes back must be seen to do both.
func TestEventsOfOneInterfaceAreHandledOneAfterTheOther(t *testing.T) {
	added := func(name string) links.Event { return links.Event{Kind: links.Added, Name: name} }
	for _, test := range []struct {
		name  string
		batch []links.Event
		want  int
	}{
		{"different ones", []links.Event{added("a"), added("b"), {Kind: links.Removed, Name: "c"}}, 3},
		{"carriers", []links.Event{added("a"), {Kind: links.Up, Name: "a"}, {Kind: links.Down, Name: "a"}, added("b")}, 4},
		{"gone and back", []links.Event{{Kind: links.Removed, Name: "a"}, added("b"), added("a")}, 2},
		{"renamed to a name that was taken", []links.Event{{Kind: links.Removed, Name: "a"}, {Kind: links.Renamed, Name: "a", OldName: "b"}}, 1},
		{"renamed, and its name taken", []links.Event{{Kind: links.Renamed, Name: "b", OldName: "a"}, added("a")}, 1},
	} {
		if got := distinct(test.batch); got != test.want {
			t.Errorf("%s: %d events at once, want %d", test.name, got, test.want)
		}
	}
}
