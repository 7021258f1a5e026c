package ibvtest_test

import (
	"context"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
)

// addresses of both ends, of both families.
var (
	near4, far4 = netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("192.0.2.2/24")
	near6, far6 = netip.MustParsePrefix("2001:db8::1/64"), netip.MustParsePrefix("2001:db8::2/64")
)

// connect gives two ends addresses and each other's MAC addresses.
func connect(t *testing.T, near, far *lab.End) {
	t.Helper()
	for _, err := range []error{
		near.AddAddr(near4), near.AddAddr(near6), far.AddAddr(far4), far.AddAddr(far6),
		far.AddNeighbor(near4.Addr(), near.MAC), far.AddNeighbor(near6.Addr(), near.MAC),
		near.AddNeighbor(far4.Addr(), far.MAC), near.AddNeighbor(far6.Addr(), far.MAC),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// tcpTo matches TCP to a port, in a C-tag of an id when that is not 0.
func tcpTo(port, vlan uint16) nicMatch {
	var m nicMatch
	m.Value.Outer.Present, m.Mask.Outer.Present = nicTCP, nicTCP
	m.Value.Outer.Dport, m.Mask.Outer.Dport = port, 0xffff
	if vlan != 0 {
		m.Value.Outer.Present |= nicCVLAN
		m.Mask.Outer.Present |= nicCVLAN
		m.Value.Outer.TCI[0], m.Mask.Outer.TCI[0] = vlan, 0xfff
	}
	return m
}

// A stream of the kernel's TCP must count as many segments and bytes as its sender reports: whether
// the kernel or the driver segments it, at both ends of the wire, and also if GRO merges it in
// front of the engine.
func TestNICCountsSegments(t *testing.T) {
	const port, size = 5001, 8 << 20
	for _, c := range []struct {
		name     string
		tso, gro bool
		six      bool
	}{
		{"cut by TCP", false, false, false},
		{"cut by the device", true, false, false},
		{"put together by GRO", false, true, false},
		{"cut by the device, GRO", true, true, false},
		{"IPv6 cut by TCP", false, false, true},
		{"IPv6 cut by the device", true, false, true},
		{"IPv6 put together by GRO", false, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, arriving := nicWire(t)
			leaving := startNIC(t, nicProgram(t), w.Far.NS)
			leaving.must("open %s", w.Far.Name)
			connect(t, w.Near, w.Far)
			for _, err := range []error{w.Far.SetOffload(c.tso, lab.TSO, lab.GSO), w.Near.SetOffload(c.gro, lab.GRO)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			addRule(t, arriving, nicRule{match: tcpTo(port, 0)})
			addRule(t, leaving, nicRule{flags: nicEgress, match: tcpTo(port, 0)})
			to := near4
			if c.six {
				to = near6
			}
			want, sent := streamed(t, w.Far, w.Near, w.Far, netip.AddrPortFrom(to.Addr(), port), size)
			if got := leaving.read(0); got != want || got.Packets != uint64(sent.Segments) {
				t.Errorf("left %+v, observed %+v, TCP says %+v", got, want, sent)
			}
			if got := arriving.read(0); got != want {
				t.Errorf("arrived %+v, observed %+v", got, want)
			}
			a, l := arriving.stats(), leaving.stats()
			for _, st := range []nicStats{a, l} {
				if st.drops != 0 || st.truncated != 0 {
					t.Errorf("%+v", st)
				}
			}
			if merged := l.frames < l.egress/2; merged != c.tso {
				t.Errorf("buffers of several segments leave: %t, want %t: %+v", merged, c.tso, l)
			}
			if merged := a.frames < a.ingress*9/10; c.gro && !merged || !c.gro && !c.tso && merged {
				t.Errorf("buffers of several segments arrive: %t: %+v", merged, a)
			}
		})
	}
}

func addRule(t *testing.T, d *nicDriver, r nicRule) {
	t.Helper()
	if errno := d.rule(r); errno != 0 {
		t.Fatal(errno)
	}
}

// streamed streams TCP from one end to the other and returns the packets that left by end at.
func streamed(t *testing.T, from, to, at *lab.End, addr netip.AddrPort, size int64) (lab.Tally, lab.SegmentsSent) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o, err := at.Observe(addr.Port(), true)
	if err != nil {
		t.Fatal(err)
	}
	sent, err := lab.StreamTCP(ctx, from, to, addr, size)
	if err != nil {
		t.Fatal(err)
	}
	left, err := o.Stop()
	if err != nil {
		t.Fatal(err)
	}
	return left, sent
}

// A tag belongs to each segment of a buffer, so it matches, and counts 4 bytes for each. At the
// sending end the tag is in the frame. At the receiving end the kernel has removed it.
func TestNICCountsTagsOfSegments(t *testing.T) {
	const buffers, segments, gso, id = 300, 5, 1000, 100
	w, arriving := nicWire(t)
	leaving := startNIC(t, nicProgram(t), w.Far.NS)
	leaving.must("open %s", w.Far.Name)
	for _, d := range []*nicDriver{arriving, leaving} {
		var flags uint32
		if d == leaving {
			flags = nicEgress
		}
		addRule(t, d, nicRule{flags: flags, counter: 0, priority: 0, match: tcpTo(80, id+1)})
		addRule(t, d, nicRule{flags: flags, counter: 1, priority: 1, match: tcpTo(80, id)})
		addRule(t, d, nicRule{flags: flags, counter: 2, priority: 2, match: tcpTo(80, 0)})
	}
	const headers = 14 + 4 + 20 + 20
	buffer := frame.Sized(headers+(segments-1)*gso+1, frame.Eth{}, frame.VLAN{ID: id}, frame.IPv4{Src: far4.Addr(), Dst: near4.Addr()}, frame.TCP{Dst: 80})
	sendBuffers(t, w.Far, buffer, gso, headers, buffers)
	want := lab.Tally{Packets: buffers * segments, Bytes: buffers * uint64(len(buffer)+(segments-1)*headers)}
	for side, d := range map[string]*nicDriver{"arrived": arriving, "left": leaving} {
		if got := d.read(1); got != want || d.read(0) != (lab.Tally{}) || d.read(2) != (lab.Tally{}) {
			t.Errorf("%s: %+v, want %+v; in another tag %+v, in none %+v; %+v", side, got, want, d.read(0), d.read(2), d.stats())
		}
		if st := d.stats(); st.frames > buffers*2 || st.truncated != 0 || st.drops != 0 {
			t.Errorf("%s: %+v: the buffers were cut before", side, st)
		}
	}
}

// sendBuffers sends one TCP buffer over IPv4 in a tag n times, for the device to cut.
func sendBuffers(t *testing.T, e *lab.End, buffer []byte, gso, headers uint16, n int) {
	t.Helper()
	vnet := []byte{1 /* NEEDS_CSUM */, 1 /* TCPV4 */}
	for _, v := range []uint16{headers, gso, headers - 20, 16} { // hdr_len, gso_size, csum_start, csum_offset
		vnet = binary.NativeEndian.AppendUint16(vnet, v)
	}
	err := e.NS.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
			return err
		}
		for range n {
			if err := unix.Sendto(fd, append(vnet[:len(vnet):len(vnet)], buffer...), 0, &unix.SockaddrLinklayer{Ifindex: e.Index}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
