package flow_test

import (
	"cmp"
	"testing"

	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane/flow"
)

func TestIdentityIsTheTextOfTheMirror(t *testing.T) {
	for _, c := range []struct {
		f    flow.Flow
		want string
	}{
		{flow.Flow{}, "ingress on any: any"},
		{flow.Flow{Direction: flow.Egress, Interface: "eth0.7"}, "egress on eth0.7: any"},
		{flow.Flow{Match: flow.Match{TCP: &flow.TCP{}}}, "ingress on any: tcp"},
	} {
		if got := c.f.Identity(); got != c.want {
			t.Errorf("identity %q, want %q", got, c.want)
		}
	}
	for _, text := range []string{
		"", "ingress", "ingress on eth0", "ingress on : any", "Ingress on any: any", "sideways on any: any", "ingress on a b: any",
		" on any: any", "ingress on eth0:any", "ingress on ../x: any", "operations send",
	} {
		if d, iface, ok := flow.ParseIdentity(text); ok {
			t.Errorf("%q is of direction %s on %q", text, d, iface)
		}
	}
}

// The direction and the interface of a flow are found in its text, also where the mirror cut the text.
func TestIdentityParsesEvenIfTheMirrorCutIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := flow.Flow{
			Direction: rapid.SampledFrom([]flow.Direction{flow.Ingress, flow.Egress}).Draw(t, "direction"),
			Interface: rapid.StringMatching(`(e[a-z0-9.@-]{0,14})?`).Draw(t, "interface"),
			Match:     drawMatch(t),
		}
		text := f.Identity()
		least := len(f.Direction.String() + " on " + cmp.Or(f.Interface, "any") + ": ")
		text = text[:rapid.IntRange(least, len(text)).Draw(t, "cut")]
		d, iface, ok := flow.ParseIdentity(text)
		if !ok || d != f.Direction || iface != f.Interface {
			t.Fatalf("%q is of %s on %q, %v; want %s on %q", text, d, iface, ok, f.Direction, f.Interface)
		}
	})
}
