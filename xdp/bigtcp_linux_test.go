package xdp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab"
)

// TestBigTCPIsCountedAsOnTheWire sends a stream of the kernel's own TCP over IPv6 in buffers of more than 64 KiB. The
// kernel puts a hop-by-hop header into each and takes it out again before the wire: nothing may match or count it.
func TestBigTCPIsCountedAsOnTheWire(t *testing.T) {
	const port, total = 5001, 64 << 20
	w := testWire(t)
	addr := netip.MustParseAddrPort(fmt.Sprintf("[2001:db8::1]:%d", port))
	for _, err := range []error{
		w.Near.AddAddr(netip.MustParsePrefix("2001:db8::1/64")), w.Far.AddAddr(netip.MustParsePrefix("2001:db8::2/64")),
		w.Far.AddNeighbor(netip.MustParseAddr("2001:db8::1"), w.Near.MAC), w.Near.AddNeighbor(netip.MustParseAddr("2001:db8::2"), w.Far.MAC),
		// Without TSO, segmentation is between the hook and the wire, so the other end sees the frames of the wire.
		w.Far.SetOffload(false, lab.TSO),
		w.Far.NS.Do(func() error { return ip("set dev " + w.Far.Name + " gso_max_size 200000") }),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	dp := openTest(t, Options{MaxRules: 64})
	tcp, hop := Rule{Counter: mustCounter(t, dp, "tcp")}, Rule{Counter: mustCounter(t, dp, "hop-by-hop")}
	for r, next := range map[*Rule]uint8{&tcp: 6, &hop: 0} {
		k, m := &r.Key.Out, &r.Mask.Out
		k.Flags, m.Flags = FlagEgress|FlagIPv6, FlagEgress|FlagIPv6
		k.Next, m.Next = next, 0xff
		dst := addr.Addr().As16() // a report of MLD, to others, has a hop-by-hop header of its own
		copy(k.Addr[16:], dst[:])
		copy(m.Addr[16:], bytes.Repeat([]byte{255}, 16))
	}
	tcp.Key.Out.Flags, tcp.Mask.Out.Flags = FlagEgress|FlagIPv6|FlagL4, FlagEgress|FlagIPv6|FlagL4
	tcp.Key.Out.Proto, tcp.Mask.Out.Proto = 6, 0xff
	tcp.Key.Out.L4, tcp.Mask.Out.L4 = [4]byte{0, 0, port >> 8, port & 0xff}, [4]byte{0, 0, 255, 255}
	mustAdd(t, dp, tcp, hop)
	attach(t, dp, w.Far, AttachOptions{Egress: true})
	big := countBig(t, w.Far)
	wire, err := w.Near.Observe(port, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream(t.Context(), w.Far, w.Near, addr, total); err != nil {
		t.Fatal(err)
	}
	want, err := wire.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if n := big(); n == 0 {
		t.Error("no buffer was larger than 64 KiB: the test shows nothing")
	} else {
		t.Logf("%d buffers of more than 64 KiB, %+v on the wire", n, want)
	}
	if got := readOne(t, dp, tcp.Counter); got != Pair(want) {
		t.Errorf("ipv6 nexthdr 6 tcp dport %d: got %+v, want %+v", port, got, want)
	}
	if got := readOne(t, dp, hop.Counter); got != (Pair{}) {
		t.Errorf("ipv6 nexthdr 0: got %+v, want none", got)
	}
}

// countBig counts the buffers of more than 64 KiB that pass the egress of an end.
func countBig(t testing.TB, e *lab.End) (read func() uint64) {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	front(t, e, asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, 0, asm.Word), // len
		asm.JLE.Imm(asm.R6, 65536, "next"),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "next"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("next"),
		asm.Return(),
	})
	return func() (n uint64) {
		if err := m.Lookup(uint32(0), &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
}

// stream sends that many bytes by TCP. The window holds fewer segments than the backlog of a CPU, so that
// none is lost on the way, and more than one buffer of BIG TCP.
func stream(ctx context.Context, from, to *lab.End, addr netip.AddrPort, total int64) error {
	window := func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1<<20)
		}), err)
	}
	var l net.Listener
	err := to.NS.Do(func() (err error) {
		l, err = (&net.ListenConfig{Control: window}).Listen(ctx, "tcp", addr.String())
		return err
	})
	if err != nil {
		return err
	}
	defer l.Close()
	received := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			c.SetDeadline(time.Now().Add(2 * time.Minute))
			_, err = io.Copy(io.Discard, c)
			err = errors.Join(err, c.Close())
		}
		received <- err
	}()
	var c net.Conn
	err = from.NS.Do(func() (err error) {
		c, err = (&net.Dialer{FallbackDelay: -1}).DialContext(ctx, "tcp", addr.String())
		return err
	})
	if err != nil {
		return err
	}
	c.SetDeadline(time.Now().Add(2 * time.Minute))
	chunk := make([]byte, 1<<20)
	for ; total > 0 && err == nil; total -= int64(len(chunk)) {
		_, err = c.Write(chunk)
	}
	return errors.Join(err, c.Close(), <-received)
}
