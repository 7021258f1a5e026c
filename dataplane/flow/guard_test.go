package flow_test

import (
	"testing"

	"github.com/flowtally/flowtally/dataplane/flow"
)

func TestUnguardedReturnsFlowsThatIncompleteHeadersEvade(t *testing.T) {
	drop := func(name, text string) flow.Flow {
		m, err := flow.ParseMatch(text)
		if err != nil {
			t.Fatal(err)
		}
		return flow.Flow{Name: name, Match: m, Action: flow.Drop}
	}
	on := func(f flow.Flow, d flow.Direction, ifname string) flow.Flow {
		f.Direction, f.Interface = d, ifname
		return f
	}
	count := func(f flow.Flow) flow.Flow {
		f.Action = flow.Count
		return f
	}
	dns := drop("dns", "udp dport 53")
	for _, c := range []struct {
		name  string
		flows []flow.Flow
		want  int // guards that are missing
	}{
		{"a drop above IP", []flow.Flow{dns}, 1},
		{"of addresses, which a third tag hides", []flow.Flow{drop("net", "ipv4 src 10.0.0.0/8")}, 1},
		{"of Ethernet, which is always seen", []flow.Flow{drop("arp", "eth type 0x0806"), drop("all", "any")}, 0},
		{"of a label, which a third tag hides", []flow.Flow{drop("label", "mpls label 16")}, 1},
		{"of flags, which the second fragment may have", []flow.Flow{drop("syn", "tcp flags syn/syn,ack")}, 1},
		{"of the absence of a tag", []flow.Flow{drop("native", "untagged")}, 0},
		{"guarded", []flow.Flow{dns, drop("rest", "incomplete")}, 0},
		{"guarded on all interfaces", []flow.Flow{on(dns, flow.Ingress, "eth0"), drop("rest", "incomplete")}, 0},
		{"guarded on its interface", []flow.Flow{on(dns, flow.Ingress, "eth0"), on(drop("rest", "incomplete"), flow.Ingress, "eth0")}, 0},
		{"guarded on another interface", []flow.Flow{on(dns, flow.Ingress, "eth0"), on(drop("rest", "incomplete"), flow.Ingress, "eth1")}, 1},
		{"guarded on one of all interfaces", []flow.Flow{dns, on(drop("rest", "incomplete"), flow.Ingress, "eth1")}, 1},
		{"guarded on the other side", []flow.Flow{dns, on(drop("rest", "incomplete"), flow.Egress, "")}, 1},
		{"guarded in part", []flow.Flow{dns, drop("rest", "ipv6 incomplete")}, 1},
		{"counted, not dropped", []flow.Flow{dns, count(drop("rest", "incomplete"))}, 1},
		{"counts only", []flow.Flow{count(dns)}, 0},
		{"inside a tunnel", []flow.Flow{drop("in", "geneve vni 5 inner tcp dport 22")}, 2},
		{"inside a tunnel, guarded outside alone", []flow.Flow{drop("in", "geneve vni 5 inner tcp dport 22"), drop("rest", "incomplete")}, 1},
		{"inside a tunnel, guarded inside alone", []flow.Flow{drop("in", "vxlan inner ipv6"), drop("rest", "vxlan inner incomplete")}, 2},
		{"inside a tunnel, guarded on both levels", []flow.Flow{drop("in", "ipip inner udp dport 53"), drop("out", "incomplete"), drop("rest", "ipip inner incomplete")}, 0},
		{"inside a tunnel, guarded in another kind of tunnel", []flow.Flow{drop("in", "gre inner udp dport 53"), drop("out", "incomplete"), drop("rest", "ipip inner incomplete")}, 1},
		{"inside one network, guarded there", []flow.Flow{drop("in", "gtpu teid 7 inner tcp dport 22"), drop("out", "incomplete"), drop("rest", "gtpu teid 7 inner incomplete")}, 0},
		{"inside one network, guarded in another", []flow.Flow{drop("in", "gtpu teid 7 inner tcp dport 22"), drop("out", "incomplete"), drop("rest", "gtpu teid 8 inner incomplete")}, 1},
		{"of Ethernet inside a tunnel", []flow.Flow{drop("in", "vxlan inner eth src 02:00:00:00:00:01"), drop("out", "incomplete")}, 0},
		{"of anything inside a tunnel", []flow.Flow{drop("in", "geneve vni 5 inner any"), drop("out", "incomplete")}, 0},
	} {
		if got := flow.Unguarded(c.flows); len(got) != c.want {
			t.Errorf("%s: %d missing guards, want %d: %v", c.name, len(got), c.want, got)
		}
	}
}
