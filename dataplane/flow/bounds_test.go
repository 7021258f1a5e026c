package flow_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/oracle/gen"
)

// apart reports whether two flows have no number in common for some property.
func apart(a, b *flow.Flow) bool {
	theirs := make(map[int][]flow.Extent)
	for _, bound := range b.Bounds() {
		theirs[bound.Property] = bound.Extents
	}
	for _, bound := range a.Bounds() {
		if other := theirs[bound.Property]; other != nil && !anyMeets(bound.Extents, other) {
			return true
		}
	}
	return false
}

func anyMeets(a, b []flow.Extent) bool {
	for _, x := range a {
		for _, y := range b {
			differ := flow.Number{Hi: (x.First.Hi ^ y.First.Hi) & x.Mask.Hi & y.Mask.Hi, Lo: (x.First.Lo ^ y.First.Lo) & x.Mask.Lo & y.Mask.Lo}
			if differ == (flow.Number{}) && x.First.Compare(y.Last) <= 0 && y.First.Compare(x.Last) <= 0 {
				return true
			}
		}
	}
	return false
}

// Flows that their bounds tell apart do not overlap, and bounds tell nearly all flows apart that do not overlap.
func TestBoundsTellOnlyFlowsApartThatDoNotOverlap(t *testing.T) {
	told, missed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "flows"), rapid.Uint64().Draw(t, "more")))
		flows := gen.Flows(rng, 40)
		for i := range flows {
			flows[i].Direction = flow.Direction(rng.IntN(2))
			flows[i].Interface = []string{"", "", "eth0", "eth1"}[rng.IntN(4)]
		}
		for i := range flows {
			for j := range flows {
				a, b := &flows[i], &flows[j]
				switch overlap := flow.Overlap(a, b); {
				case apart(a, b) && overlap:
					t.Fatalf("%q and %q overlap, and have the bounds\n%v\n%v", a.Match, b.Match, a.Bounds(), b.Bounds())
				case apart(a, b):
					told++
				case !overlap:
					missed++
				}
			}
		}
	})
	t.Logf("bounds told %d pairs apart, and not %d others", told, missed)
	if missed > told/50 {
		t.Error("too many pairs are not told apart")
	}
}

func TestBoundsAreThoseOfFieldsAndOfClauses(t *testing.T) {
	for _, c := range []struct {
		text string
		want string // the extents of one of its bounds
	}{
		{"ipv4 dst 192.0.2.0/24", "3221225984-3221226239"},
		{"tcp dport {22, 80-90}", "22 80-90"},
		{"tcp dport != 80", "0-79 81-65535"},
		{"vxlan", "4789"},
		{"tcp dport 0/0x8001", "0-32766"},
	} {
		f := flow.MustParse("f", c.text)
		all := ""
		last := -1
		for _, b := range f.Bounds() {
			if b.Property <= last {
				t.Errorf("%s: property %d behind %d", c.text, b.Property, last)
			}
			last = b.Property
			var words []string
			for _, e := range b.Extents {
				if e.First == e.Last {
					words = append(words, fmt.Sprint(e.First.Lo))
				} else {
					words = append(words, fmt.Sprintf("%d-%d", e.First.Lo, e.Last.Lo))
				}
			}
			all += "|" + strings.Join(words, " ") + "|"
		}
		if !strings.Contains(all, "|"+c.want+"|") {
			t.Errorf("%s has the bounds %s, want %s among them", c.text, all, c.want)
		}
	}
}
