package xdp

import (
	"fmt"
	"net"
	"testing"

	"github.com/flowtally/flowtally/internal/lab"
)

// TestMarkIsOfOneInterface counts packets on an interface whose program of XDP marks them, as during a move, and again by
// TCX on a macvlan above it. A packet keeps its metadata on the way: the program of TCX must not take the mark of the other
// interface for its own.
func TestMarkIsOfOneInterface(t *testing.T) {
	w := testWire(t)
	rs := openTest(t, Options{MaxRules: 1024})
	ids := floodRules(t, rs, 1)
	attach(t, rs, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	for _, h := range rs.hooks {
		marking, err := rs.load.named(rs.constants, h.site, flowtallyProgFlowtallyXdpMark)
		if err == nil {
			err = h.update(marking)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	above := *w.Near
	above.Name = "above0"
	err := w.Near.NS.Do(func() error {
		if err := ip(fmt.Sprintf("add link %s name %s type macvlan mode passthru", w.Near.Name, above.Name)); err != nil {
			return err
		}
		if err := ip("set " + above.Name + " up"); err != nil {
			return err
		}
		ifi, err := net.InterfaceByName(above.Name)
		if err == nil {
			above.Index = ifi.Index
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	attach(t, rs, &above, AttachOptions{Mode: ModeTCX, Ingress: true})
	s := flood(t, w.Far, 1, 100, lab.SenderOptions{})
	if err := s.Run(t.Context(), 2000); err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	sent := s.Sent()[0].Packets
	lab.Eventually(t, "each packet counted on both interfaces", func() bool { return readOne(t, rs, ids[0]).Packets == 2*sent })
}
