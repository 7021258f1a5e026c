package xdp

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab"
)

// tcpTo matches TCP over IPv4 to a port, both directions of the hook.
func tcpTo(port uint16, counter uint32) Rule {
	r := Rule{Counter: counter}
	r.Key.Out.Proto, r.Mask.Out.Proto = 6, 0xff
	r.Key.Out.Flags, r.Mask.Out.Flags = FlagIPv4|FlagL4, FlagIPv4|FlagL4
	r.Key.Out.L4[2], r.Key.Out.L4[3] = byte(port>>8), byte(port)
	r.Mask.Out.L4[2], r.Mask.Out.L4[3] = 255, 255
	return r
}

// The kernel's own TCP sends a stream. Native XDP sees single segments, while TCX sees buffers of many.
func TestTCPStreamCountsEachSegmentOnEveryHook(t *testing.T) {
	for _, tc := range []struct {
		name   string
		tso    bool
		egress bool
		mode   Mode // of ingress
	}{
		{"native ingress", false, false, ModeNative}, {"egress", false, true, 0}, {"egress of GSO buffers", true, true, 0},
		{"TCX ingress", false, false, ModeTCX}, {"TCX ingress of GSO buffers", true, false, ModeTCX},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := testWire(t)
			near, far := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
			for _, err := range []error{
				w.Near.AddAddr(netip.PrefixFrom(near, 24)), w.Far.AddAddr(netip.PrefixFrom(far, 24)),
				w.Far.AddNeighbor(near, w.Near.MAC), w.Near.AddNeighbor(far, w.Far.MAC),
				w.Far.SetOffload(tc.tso, lab.TSO, lab.GSO),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			dp := openTest(t, Options{MaxRules: 1024})
			id := mustCounter(t, dp, "stream")
			mustAdd(t, dp, tcpTo(5001, id))
			if tc.egress {
				attach(t, dp, w.Far, AttachOptions{Egress: true})
			} else {
				attach(t, dp, w.Near, AttachOptions{Mode: tc.mode, Ingress: true})
			}
			o, err := w.Far.Observe(5001, true)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if _, err := lab.StreamTCP(ctx, w.Far, w.Near, netip.AddrPortFrom(near, 5001), 20<<20); err != nil {
				t.Fatal(err)
			}
			left, err := o.Stop()
			if err != nil {
				t.Fatal(err)
			}
			got := readOne(t, dp, id)
			for end := time.Now().Add(20 * time.Second); got != Pair(left) && time.Now().Before(end); got = readOne(t, dp, id) {
				time.Sleep(time.Millisecond) // the last segment may be on its way
			}
			err = dp.grace.wait()
			if got = readOne(t, dp, id); got != Pair(left) || err != nil {
				t.Errorf("counted %+v, on the wire were %+v, %v", got, left, err)
			}
			if merged := o.Merged() > 0; merged != tc.tso {
				t.Errorf("buffers of several segments: %d, want any: %t", o.Merged(), tc.tso)
			}
		})
	}
}
