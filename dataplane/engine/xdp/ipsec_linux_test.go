package xdp

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// policy returns a policy with addresses that depend on n.
func policy(n int, dir netlink.Dir, mode netlink.Mode) *netlink.XfrmPolicy {
	ones := net.CIDRMask(32, 32)
	return &netlink.XfrmPolicy{
		Src: &net.IPNet{IP: net.IPv4(10, 0, byte(n>>8), byte(n)), Mask: ones},
		Dst: &net.IPNet{IP: net.IPv4(10, 1, byte(n>>8), byte(n)), Mask: ones},
		Dir: dir,
		Tmpls: []netlink.XfrmPolicyTmpl{{
			Src:   net.IPv4(192, 0, 2, 1),
			Dst:   net.IPv4(192, 0, 2, 2),
			Proto: netlink.XFRM_PROTO_ESP,
			Mode:  mode,
		}},
	}
}

// Only policies of tunnel mode for received packets, in the namespace of the instance, make packets count twice. The look must
// find them among 10,000 others.
func TestOnlyTunnelPoliciesForReceivedPacketsAreFound(t *testing.T) {
	need.IPsec(t)
	w, err := lab.NewWire(lab.WireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var p kernelPolicies
	if err := w.Near.NS.Do(func() error {
		ns, err := backend.CurrentNetns()
		p.ns = ns
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer p.ns.Close()
	if !p.available() {
		t.Fatal("the kernel has xfrm_user, and is said to lack it")
	}

	change := func(end *lab.End, do func(*netlink.XfrmPolicy) error, list ...*netlink.XfrmPolicy) {
		t.Helper()
		if err := end.NS.Do(func() error {
			for _, policy := range list {
				if err := do(policy); err != nil {
					return fmt.Errorf("policy %+v: %w", policy, err)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	tunnels := &tunnels{policies: p}
	defer tunnels.close()
	looked(t, tunnels, "")

	tunnel := policy(1, netlink.XFRM_DIR_IN, netlink.XFRM_MODE_TUNNEL)
	change(w.Far, netlink.XfrmPolicyAdd, tunnel) // in another namespace
	looked(t, tunnels, "")

	sent := policy(1, netlink.XFRM_DIR_OUT, netlink.XFRM_MODE_TUNNEL)
	ofInterface := policy(2, netlink.XFRM_DIR_IN, netlink.XFRM_MODE_TUNNEL)
	ofInterface.Ifid = 7
	change(w.Near, netlink.XfrmPolicyAdd, sent, ofInterface, policy(3, netlink.XFRM_DIR_IN, netlink.XFRM_MODE_TRANSPORT))
	looked(t, tunnels, "")

	change(w.Near, netlink.XfrmPolicyAdd, tunnel)
	looked(t, tunnels, "src 10.0.0.1/32 dst 10.1.0.1/32 dir in")
	change(w.Near, netlink.XfrmPolicyDel, tunnel)
	looked(t, tunnels, "")

	forward := policy(4, netlink.XFRM_DIR_FWD, netlink.XFRM_MODE_TUNNEL)
	change(w.Near, netlink.XfrmPolicyAdd, forward)
	looked(t, tunnels, "src 10.0.0.4/32 dst 10.1.0.4/32 dir fwd")
	change(w.Near, netlink.XfrmPolicyDel, forward)

	const others = 10_000
	var list []*netlink.XfrmPolicy
	for n := range others {
		list = append(list, policy(10+n, netlink.XFRM_DIR_IN, netlink.XFRM_MODE_TRANSPORT))
	}
	change(w.Near, netlink.XfrmPolicyAdd, list...)
	began := time.Now()
	looked(t, tunnels, "")
	listed := time.Since(began)
	began = time.Now()
	for range 1000 {
		looked(t, tunnels, "")
	}
	t.Logf("%d policies: listed in %v; a look without a change takes %v", others, listed, time.Since(began)/1000)
	change(w.Near, netlink.XfrmPolicyAdd, tunnel)
	began = time.Now()
	looked(t, tunnels, "src 10.0.0.1/32 dst 10.1.0.1/32 dir in")
	t.Logf("a tunnel among them: found in %v", time.Since(began))
}
