package engine

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
)

// TestNoChainOfHeadersPassesAFilter drops UDP to port 5353 and packets with incomplete headers. Datagrams to that
// port come behind 0 to 20 extension headers, behind three tags and cut before their ports: none passes. Packets
// with complete headers and another port pass.
func TestNoChainOfHeadersPassesAFilter(t *testing.T) {
	const most, each = 20, 100
	eth := frame.Eth{Dst: [6]byte{2, 0, 0, 0, 0, 1}, Src: [6]byte{2, 0, 0, 0, 0, 2}}
	ip6 := frame.IPv6{Src: frame.Addr("2001:db8::1"), Dst: frame.Addr("2001:db8::2")}
	chain := func(n int, port uint16) []byte {
		layers := []frame.Layer{eth, ip6}
		for range n {
			layers = append(layers, frame.Ext{Type: frame.Destination})
		}
		return frame.Build(append(layers, frame.UDP{Src: 9, Dst: port}, frame.Payload(20))...)
	}
	tags := func(n int, port uint16) []byte {
		layers := []frame.Layer{eth}
		for range n {
			layers = append(layers, frame.VLAN{})
		}
		return frame.Build(append(layers, frame.IPv4{Src: frame.Addr("192.0.2.1"), Dst: frame.Addr("192.0.2.2")}, frame.UDP{Src: 9, Dst: port}, frame.Payload(20))...)
	}
	streams := []lab.Stream{
		{Name: "passes", Frames: [][]byte{chain(0, 53), chain(8, 53), tags(2, 53)}},
		{Name: "port"}, {Name: "incomplete"},
	}
	for n := range most + 1 {
		to := &streams[1]
		if n > 8 {
			to = &streams[2]
		}
		to.Frames = append(to.Frames, chain(n, 5353))
	}
	streams[1].Frames = append(streams[1].Frames, tags(2, 5353))
	streams[2].Frames = append(streams[2].Frames, tags(3, 5353), chain(3, 5353)[:14+40+3*8+3], chain(3, 5353)[:14+40+2*8+7])
	passOnlyTheFirst(t, each, streams,
		flow.Flow{Name: "port", Match: match(t, "udp dport 5353"), Action: flow.Drop, Priority: 1},
		flow.Flow{Name: "incomplete", Match: match(t, "incomplete"), Action: flow.Drop, Priority: 2},
		flow.Flow{Name: "passes", Match: match(t, "udp dport 53"), Priority: 3},
	)
}

// TestNoFragmentPassesAFilterOfFlags drops TCP segments that open a connection, and packets with incomplete headers. A
// SYN whose flags are in its second fragment has a first fragment that Ethernet pads with bytes that look like an ACK:
// it does not pass, and neither does the SYN in one packet. Other segments and later fragments pass.
func TestNoFragmentPassesAFilterOfFlags(t *testing.T) {
	const each = 200
	eth := frame.Eth{Dst: [6]byte{2, 0, 0, 0, 0, 1}, Src: [6]byte{2, 0, 0, 0, 0, 2}}
	ip4 := frame.IPv4{Src: frame.Addr("192.0.2.1"), Dst: frame.Addr("192.0.2.2")}
	ip6 := frame.IPv6{Src: frame.Addr("2001:db8::1"), Dst: frame.Addr("2001:db8::2")}
	syn := frame.TCP{Src: 9, Dst: 5353, Flags: frame.SYN | 0xc0}
	link := []frame.Layer{eth}
	cut4, cut6 := frame.FragmentsIPv4(link, ip4, 8, syn), frame.FragmentsIPv6(link, ip6, 1, 8, syn)
	whole4, whole6 := frame.FragmentsIPv4(link, ip4, 16, syn), frame.FragmentsIPv6(link, ip6, 1, 16, syn)
	padded := func(b []byte) []byte { return append(b, bytes.Repeat([]byte{frame.ACK}, 24)...) }
	ack := frame.TCP{Src: 9, Dst: 53}
	later := ip4
	later.Offset, later.Proto = 8, flow.ProtoTCP
	streams := []lab.Stream{
		{Name: "passes", Frames: [][]byte{
			frame.Build(eth, ip4, ack), frame.Build(eth, ip6, ack), frame.Sized(60, eth, later, frame.Bytes{0, 9, 0, 53, 0x50, frame.SYN}),
			frame.FragmentsIPv4(link, ip4, 16, ack)[0],
		}},
		{Name: "syn", Frames: [][]byte{frame.Build(eth, ip4, syn), frame.Build(eth, ip6, syn), padded(whole4[0]), padded(whole6[0])}},
		{Name: "incomplete", Frames: [][]byte{padded(cut4[0]), padded(cut6[0]), frame.Build(eth, ip4, syn)[:14+20+13]}},
	}
	passOnlyTheFirst(t, each, streams,
		flow.Flow{Name: "syn", Match: match(t, "tcp flags syn/syn,ack"), Action: flow.Drop, Priority: 1},
		flow.Flow{Name: "incomplete", Match: match(t, "incomplete"), Action: flow.Drop, Priority: 2},
		flow.Flow{Name: "passes", Match: match(t, "tcp"), Priority: 3},
	)
}

// passOnlyTheFirst sends each frame of the streams each times to an instance with flows, in native and in generic mode.
// Every stream is counted by the flow of its name, and the first one alone is delivered.
func passOnlyTheFirst(t *testing.T, each uint64, streams []lab.Stream, flows ...flow.Flow) {
	t.Helper()
	frames := 0
	for _, s := range streams {
		frames += len(s.Frames)
	}
	for _, mode := range []string{"native", "generic"} {
		t.Run(mode, func(t *testing.T) {
			b := newBench(t, mode, flows...)
			b.start(t)
			delivered := b.deliveries(t)
			sent := b.send(t, each*uint64(frames), streams...)
			r := reader(t, b.cfg)
			for i, s := range streams {
				await(t, r, s.Name, backend.Pair(sent[i]))
			}
			passed, others := delivered()
			if uint64(passed) != sent[0].Packets || others != 0 {
				t.Errorf("delivered: %d of %q, %d others; want %d and none", passed, streams[0].Name, others, sent[0].Packets)
			}
			for i, s := range streams {
				t.Logf("%d packets of %q", sent[i].Packets, s.Name)
			}
		})
	}
}

// deliveries counts the frames that pass the programs at the near end: those that hold a UDP port 53, and others.
// arrived returns the numbers of frames that have arrived since its last call.
func (b *bench) deliveries(t *testing.T) (arrived func() (dns, others int)) {
	t.Helper()
	fd := -1
	const all = unix.ETH_P_ALL>>8&0xff | unix.ETH_P_ALL&0xff<<8
	err := b.wire.Near.NS.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
			return fmt.Errorf("enlarging the buffer: %w", err)
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: b.wire.Near.Index, Protocol: all})
	})
	t.Cleanup(func() { unix.Close(fd) })
	if err != nil {
		t.Fatal(err)
	}
	return func() (dns, others int) {
		buf := make([]byte, 2048)
		for {
			n, from, err := unix.Recvfrom(fd, buf, 0)
			if errors.Is(err, unix.EAGAIN) {
				return dns, others
			}
			if err != nil {
				t.Fatal(err)
			}
			if l, ok := from.(*unix.SockaddrLinklayer); ok && l.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			if bytes.Contains(buf[:n], []byte{0, 9, 0, 53}) {
				dns++
			} else {
				others++
			}
		}
	}
}
