package xdp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/xdp/links"
)

// The conditions name the interfaces that lie above each other and count the same packets, and the list that ends this.
func TestStackedNamesTheListThatCountsOnce(t *testing.T) {
	const eth0, eth1, br0, vlan, bond0 = 2, 3, 4, 5, 6
	bridged := []links.Link{{Index: eth0, Name: "eth0", Master: br0}, {Index: eth1, Name: "eth1"}, {Index: br0, Name: "br0", Kind: "bridge"}}
	tagged := []links.Link{{Index: eth0, Name: "eth0"}, {Index: vlan, Name: "eth0.5", Kind: "vlan", Parent: eth0}}
	tower := []links.Link{
		{Index: eth0, Name: "eth0", Master: bond0}, {Index: eth1, Name: "eth1", Master: bond0}, {Index: bond0, Name: "bond0", Kind: "bond"},
		{Index: vlan, Name: "bond0.5", Kind: "vlan", Parent: bond0, Master: br0}, {Index: br0, Name: "br0", Kind: "bridge"},
	}
	named := func(names ...string) (list []dataplane.Interface) {
		for _, name := range names {
			list = append(list, dataplane.Interface{Name: name})
		}
		return list
	}
	in := flow.Flow{Name: "in"}
	out := flow.Flow{Name: "out", Direction: flow.Egress}
	onBridge := flow.Flow{Name: "bridge", Interface: "br0"}
	onPort := flow.Flow{Name: "port", Interface: "eth0"}
	untagged := flow.Flow{Name: "untagged", Match: flow.Match{Untagged: true}}

	for _, c := range []struct {
		name  string
		links []links.Link
		list  []dataplane.Interface
		flows []flow.Flow
		want  string // "UPPER<LOWER,…" for each condition
		fix   string // the start of the fix
	}{
		{"a port and its bridge", bridged, named("eth0", "br0"), []flow.Flow{in}, "br0<eth0", "interfaces: [eth0] "},
		{"patterns: the pattern of the port stays, with what it may match later", bridged, named("eth*", "br*"), []flow.Flow{in}, "br0<eth0", "interfaces: [eth*] "},
		{"one pattern for both becomes names", bridged, named("*"), []flow.Flow{in}, "br0<eth0", "interfaces: [eth0, eth1] "},
		{"no flow", bridged, named("eth0", "br0"), nil, "", ""},
		{"each flow has an interface of its own", bridged, named("eth0", "br0"), []flow.Flow{onBridge, onPort}, "", ""},
		{"the upper interface must stay for a flow that names it", bridged, named("*"), []flow.Flow{in, onBridge}, "br0<eth0", "interfaces: [eth1, br0] "},
		{"both must stay", bridged, named("*"), []flow.Flow{in, onBridge, onPort}, "br0<eth0", "give each flow an interface of its own"},
		{"one receives and the other sends", bridged, []dataplane.Interface{{Name: "eth0", Direction: dataplane.DirectionIngress}, {Name: "br0", Direction: dataplane.DirectionEgress}},
			[]flow.Flow{in, out}, "", ""},
		{"the upper one still sends", bridged, []dataplane.Interface{{Name: "eth0", Direction: dataplane.DirectionIngress}, {Name: "br0", Mode: dataplane.ModeTCX, Optional: true}},
			[]flow.Flow{in, out}, "br0<eth0", "interfaces: [{name: eth0, direction: ingress}, {name: br0, mode: tcx, optional: true, direction: egress}] "},
		{"both directions", bridged, named("eth0", "br0", "wlan0"), []flow.Flow{in, out}, "br0<eth0", "interfaces: [eth0, wlan0] "},
		{"a VLAN device and its parent", tagged, named("e*"), []flow.Flow{in}, "eth0.5<eth0", "interfaces: [eth0] "},
		{"a flow that matches on one side of a VLAN device", tagged, named("e*"), []flow.Flow{untagged}, "", ""},
		{"a bridge over a VLAN device over a bond over two ports", tower, named("*"), []flow.Flow{out},
			"br0<bond0,bond0.5,eth0,eth1 bond0.5<bond0,eth0,eth1 bond0<eth0,eth1", "interfaces: [eth0, eth1] "},
		{"a bridge over a port, without the links between", tower, named("eth1", "br0"), []flow.Flow{out}, "br0<eth1", "interfaces: [eth1] "},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := make(map[int]links.Link)
			for _, l := range c.links {
				all[l.Index] = l
			}
			got := stackedOf(c.list, c.flows, all)
			if n := len(strings.Fields(c.want)); len(got) != n {
				t.Fatalf("%d conditions, want %d: %+v", len(got), n, got)
			}
			for i, want := range strings.Fields(c.want) {
				upper, lower, _ := strings.Cut(want, "<")
				found := false
				for _, g := range got {
					if g.Object != upper {
						continue
					}
					found = true
					if pass := fmt.Sprintf(" pass %s as well", strings.ReplaceAll(lower, ",", ", ")); !strings.Contains(g.Text, pass) {
						t.Errorf("condition %d has the text %q, which lacks %q", i, g.Text, pass)
					}
				}
				if !found {
					t.Errorf("no condition for %s: %+v", upper, got)
				}
			}
			for _, g := range got {
				if !strings.HasPrefix(g.Fix, c.fix) {
					t.Errorf("the fix is %q, want %q", g.Fix, c.fix)
				}
			}
		})
	}
}

// Without quotes YAML would read these names as something else than strings.
func TestEntriesQuoteNamesThatYAMLMisreads(t *testing.T) {
	for name, want := range map[string]string{"eth0.5": "eth0.5", "en*": "en*", "*": "'*'", "on": "'on'", "9p": "'9p'", "e[np]*": "'e[np]*'", "a'b": "'a''b'"} {
		if got := entryText(dataplane.Interface{Name: name}); got != want {
			t.Errorf("%s is written %s, want %s", name, got, want)
		}
	}
}

// The list of interfaces is in one condition only. In all of them the text would grow with the square of the interfaces.
func TestStackedTextGrowsWithTheInterfaces(t *testing.T) {
	text := func(n int) (bytes int) {
		all := make(map[int]links.Link)
		for i := range n {
			nic := links.Link{Index: 2*i + 1, Name: fmt.Sprintf("eth%d", i)}
			vlan := links.Link{Index: 2*i + 2, Name: fmt.Sprintf("eth%d.5", i), Kind: "vlan", Parent: nic.Index}
			all[nic.Index], all[vlan.Index] = nic, vlan
		}
		got := stackedOf([]dataplane.Interface{{Name: "e*"}}, []flow.Flow{{Name: "in"}}, all)
		if len(got) != n {
			t.Fatalf("%d conditions, want %d", len(got), n)
		}
		whole := 0
		for _, g := range got {
			bytes += len(g.Text) + len(g.Fix)
			if strings.Contains(g.Fix, fmt.Sprintf("eth%d]", n-1)) {
				whole++
			} else if !strings.Contains(g.Fix, got[0].Object) {
				t.Fatalf("the condition of %s refers to no other: %s", g.Object, g.Fix)
			}
		}
		if whole != 1 {
			t.Errorf("%d of %d conditions have the whole list", whole, n)
		}
		return bytes
	}
	if few, many := text(100), text(1000); many > 11*few {
		t.Errorf("100 stacked interfaces take %d bytes of text, 1,000 take %d", few, many)
	}
}
