package lab

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
)

// addressed gives both ends an address of each family, and each the hardware
// address of the other.
func addressed(t testing.TB, w *Wire) (near4, near6 netip.Addr) {
	t.Helper()
	near4, near6 = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	far4, far6 := netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2")
	for _, err := range []error{
		w.Near.AddAddr(netip.PrefixFrom(near4, 24)), w.Near.AddAddr(netip.PrefixFrom(near6, 64)),
		w.Far.AddAddr(netip.PrefixFrom(far4, 24)), w.Far.AddAddr(netip.PrefixFrom(far6, 64)),
		w.Far.AddNeighbor(near4, w.Near.MAC), w.Far.AddNeighbor(near6, w.Near.MAC),
		w.Near.AddNeighbor(far4, w.Far.MAC), w.Near.AddNeighbor(far6, w.Far.MAC),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return near4, near6
}

// A stream of the kernel's TCP: the observed segments are the ones that the sender's TCP
// reports and that the other end sees, with segmentation by the stack and without.
func TestStreamTCPReportsTheSegmentsThatBothEndsSee(t *testing.T) {
	const size = 20 << 20
	for _, tc := range []struct {
		name string
		tso  bool
		six  bool
	}{{"cut by tcp", false, false}, {"cut by the device", true, false}, {"IPv6 cut by tcp", false, true}, {"IPv6 cut by the device", true, true}} {
		t.Run(tc.name, func(t *testing.T) {
			w := wire(t, WireOptions{})
			near4, near6 := addressed(t, w)
			to := near4
			if tc.six {
				to = near6
			}
			if err := w.Far.SetOffload(tc.tso, TSO, GSO); err != nil {
				t.Fatal(err)
			}
			if err := w.Near.SetOffload(false, GRO); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			leaving, err := w.Far.Observe(5001, true)
			if err != nil {
				t.Fatal(err)
			}
			arriving, err := w.Near.Observe(5001, false)
			if err != nil {
				t.Fatal(err)
			}
			other, err := w.Far.Observe(5002, true)
			if err != nil {
				t.Fatal(err)
			}
			sent, err := StreamTCP(ctx, w.Far, w.Near, netip.AddrPortFrom(to, 5001), size)
			if err != nil {
				t.Fatal(err)
			}
			left, err := leaving.Stop()
			if err != nil {
				t.Error(err)
			}
			arrived, err := arriving.Stop()
			if err != nil {
				t.Error(err)
			}
			if none, err := other.Stop(); err != nil || none.Packets != 0 {
				t.Errorf("another port: %+v, %v", none, err)
			}
			if left != arrived || left.Packets != uint64(sent.Segments) {
				t.Errorf("left %+v, arrived %+v, TCP says %+v", left, arrived, sent)
			}
			if left.Bytes < size || left.Packets < size/1460 {
				t.Errorf("left %+v: less than the %d bytes of the stream", left, size)
			}
			if merged := leaving.Merged() > 0; merged != tc.tso {
				t.Errorf("buffers of several segments: %d, want any: %t", leaving.Merged(), tc.tso)
			}
		})
	}
}

// A native XDP program counts the same stream as the observer.
func TestStreamTCPIsCounted(t *testing.T) {
	w := wire(t, WireOptions{})
	// No IPv6 here: its multicast listener reports would be counted too.
	near4 := netip.MustParseAddr("192.0.2.1")
	for _, err := range []error{
		w.Near.AddAddr(netip.PrefixFrom(near4, 24)), w.Far.AddAddr(netip.MustParsePrefix("192.0.2.2/24")),
		w.Far.AddNeighbor(near4, w.Near.MAC), w.Near.AddNeighbor(netip.MustParseAddr("192.0.2.2"), w.Far.MAC),
		w.Far.SetOffload(false, TSO, GSO),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	c := xdpCounter(t, w.Near, link.XDPDriverMode, 2, 0)
	o, err := w.Far.Observe(5001, true)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := StreamTCP(ctx, w.Far, w.Near, netip.AddrPortFrom(near4, 5001), 20<<20); err != nil {
		t.Fatal(err)
	}
	left, err := o.Stop()
	if err != nil {
		t.Fatal(err)
	}
	got := c.read(t)
	for end := time.Now().Add(20 * time.Second); got != left && time.Now().Before(end); got = c.read(t) {
		time.Sleep(time.Millisecond) // the last segment may be on its way
	}
	programsReturned()
	if got = c.read(t); got != left {
		t.Errorf("counted %+v, observed %+v", got, left)
	}
}

// A stream that ctx breaks off ends: neither side waits for the other.
func TestStreamTCPEndsWithItsContext(t *testing.T) {
	w := wire(t, WireOptions{})
	near4, _ := addressed(t, w)
	for name, bounded := range map[string]func() (context.Context, context.CancelFunc){
		"deadline": func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), 100*time.Millisecond)
		},
		"cancel": func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			return ctx, cancel
		},
	} {
		ctx, cancel := bounded()
		ended := make(chan error, 1)
		go func() {
			_, err := StreamTCP(ctx, w.Far, w.Near, netip.AddrPortFrom(near4, 5001), 1<<50)
			ended <- err
		}()
		select {
		case err := <-ended:
			<-ctx.Done() // it was broken off by nothing else: a deadline is the network's own too
			if !errors.Is(err, ctx.Err()) {
				t.Errorf("%s: got %v, want %v", name, err, ctx.Err())
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: the stream goes on", name)
		}
		cancel()
	}
}
