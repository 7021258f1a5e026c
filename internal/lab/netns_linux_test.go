package lab

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// wire makes a wire that ends with the test.
func wire(t testing.TB, o WireOptions) *Wire {
	t.Helper()
	need.Netns(t)
	w, err := NewWire(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Errorf("closing the wire: %v", err)
		}
	})
	return w
}

func TestNamedNetnsIsUniqueUntilItIsClosed(t *testing.T) {
	need.Netns(t)
	name := Unique("ftlab")
	n, err := NewNetns(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewNetns(name); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second namespace of the same name: got %v, want ErrExist", err)
	}
	if _, err := os.Stat(filepath.Join(runNetns, name)); err != nil {
		t.Errorf("the second attempt removed the first one's name: %v", err)
	}
	for range 2 {
		if err := n.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	}
	if _, err := os.Stat(filepath.Join(runNetns, name)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the name is still there: %v", err)
	}
}

func TestDoReturnsThreadsToTheirNamespace(t *testing.T) {
	need.Netns(t)
	n, err := NewNetns("")
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	home, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	boom := errors.New("boom")
	for range 100 {
		err := n.Do(func() error {
			in, err := netns.Get()
			if err != nil {
				return err
			}
			defer in.Close()
			if !in.Equal(n.fd) {
				t.Errorf("inside Do: namespace %s, want %s", in.UniqueId(), n.fd.UniqueId())
			}
			return boom
		})
		if err != boom {
			t.Fatalf("got %v, want the function's own error", err)
		}
		// Any thread that Do used and returned must be home again.
		err = onThread(func() error {
			now, err := netns.Get()
			if err != nil {
				return err
			}
			defer now.Close()
			if !now.Equal(home) {
				t.Errorf("after Do: namespace %s, want %s", now.UniqueId(), home.UniqueId())
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestDoSurvivesGoexit(t *testing.T) {
	need.Netns(t)
	n, err := NewNetns("")
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if err := n.Do(func() error { runtime.Goexit(); return nil }); err == nil {
		t.Error("Do returned no error for a function that never returned")
	}
}

func TestWireCarriesDatagramsOfBothFamilies(t *testing.T) {
	w := wire(t, WireOptions{Pair: PairOptions{MTU: 3000, Queues: 2}})
	near := netip.MustParsePrefix("192.0.2.1/24")
	near6, far6 := netip.MustParsePrefix("2001:db8::1/64"), netip.MustParsePrefix("2001:db8::2/64")
	for _, err := range []error{
		w.Near.AddAddr(near), w.Far.AddAddr(netip.MustParsePrefix("192.0.2.2/24")),
		w.Near.AddAddr(near6), w.Far.AddAddr(far6),
		w.Far.AddNeighbor(near.Addr(), w.Near.MAC), w.Far.AddNeighbor(near6.Addr(), w.Near.MAC),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := w.Far.link()
	if err != nil {
		t.Fatal(err)
	}
	if a := l.Attrs(); a.MTU != 3000 || a.NumTxQueues != 2 || a.NumRxQueues != 2 {
		t.Errorf("far end: mtu %d, queues %d/%d; want 3000, 2/2", a.MTU, a.NumTxQueues, a.NumRxQueues)
	}
	// Real datagrams cross it, over both families.
	for _, addr := range []netip.Addr{near.Addr(), near6.Addr()} {
		var pc net.PacketConn
		err := w.Near.NS.Do(func() (err error) {
			pc, err = net.ListenPacket("udp", net.JoinHostPort(addr.String(), "7"))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer pc.Close()
		pc.SetReadDeadline(time.Now().Add(30 * time.Second))
		err = w.Far.NS.Do(func() error {
			c, err := net.Dial("udp", pc.LocalAddr().String())
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write([]byte("over the wire"))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		var buf [64]byte
		if n, _, err := pc.ReadFrom(buf[:]); err != nil || string(buf[:n]) != "over the wire" {
			t.Errorf("read %q, %v", buf[:n], err)
		}
	}
	if s, err := w.Near.Stats(); err != nil || s.RxPackets < 2 {
		t.Errorf("stats: %+v, %v", s, err)
	}
}

func TestOffloadsReadAsTheyWereSet(t *testing.T) {
	w := wire(t, WireOptions{})
	// Each needs those before it: the kernel drops TSO without checksums.
	all := []Offload{TxCsum, GSO, TSO, GRO, RxVLAN, TxVLAN}
	for _, on := range []bool{true, false, true} {
		for _, o := range all {
			if err := w.Far.SetOffload(on, o); err != nil {
				t.Fatal(err)
			}
			if got, err := w.Far.Offload(o); err != nil || got != on {
				t.Errorf("%s: got %t, %v; want %t", o, got, err, on)
			}
		}
		slices.Reverse(all)
	}
}

func TestPartialFailureLeavesNothing(t *testing.T) {
	need.Netns(t)
	name := Unique("ftlab")
	if _, err := NewWire(WireOptions{NearNetns: name, Near: "a-name-that-is-too-long-for-linux"}); err == nil {
		t.Fatal("an interface name of 33 bytes was accepted")
	}
	if _, err := os.Stat(filepath.Join(runNetns, name)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the namespace is still there: %v", err)
	}
}
