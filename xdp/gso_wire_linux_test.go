package xdp

import (
	"encoding/binary"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf/asm"
	"github.com/flowtally/flowtally/internal/lab"
)

// Flags and GSO types of lab.VnetHeader.
const (
	vnetNeedsCsum = 1
	gsoTCP4       = 1
	gsoUDP        = 3 // fragments
	gsoTCP6       = 4
	gsoUDPL4      = 5
)

func vnetBuffer(gsoType uint8, gsoSize, csumStart, csumOffset int, frame []byte) []byte {
	h := lab.VnetHeader{
		Flags:      vnetNeedsCsum,
		GSOType:    gsoType,
		HeaderLen:  uint16(csumStart + 20),
		GSOSize:    uint16(gsoSize),
		CsumStart:  uint16(csumStart),
		CsumOffset: uint16(csumOffset),
	}
	return h.Buffer(frame)
}

// bigTCP is a frame of TCP with that many bytes of options and of payload.
func bigTCP(v6 bool, options, payload int) (frame []byte, transport int) {
	frame, transport = bigIP(v6, 6, 20+options+payload)
	tcp := frame[transport:]
	binary.BigEndian.PutUint16(tcp, 1000)
	binary.BigEndian.PutUint16(tcp[2:], 80)
	tcp[12], tcp[13] = byte(20+options)/4<<4, 0x10 // ACK
	for i := range options {
		tcp[20+i] = 1
	}
	return frame, transport
}

func bigUDP(v6 bool, payload int) (frame []byte, transport int) {
	frame, transport = bigIP(v6, 17, 8+payload)
	udp := frame[transport:]
	binary.BigEndian.PutUint16(udp, 1000)
	binary.BigEndian.PutUint16(udp[2:], 53)
	binary.BigEndian.PutUint16(udp[4:], uint16(8+payload))
	return frame, transport
}

func bigIP(v6 bool, proto byte, above int) (frame []byte, transport int) {
	eth := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0}
	ip := make([]byte, 20)
	if v6 {
		eth[12], eth[13] = 0x86, 0xdd
		ip = make([]byte, 40)
		ip[0], ip[6], ip[7], ip[23], ip[39] = 0x60, proto, 64, 1, 2
		binary.BigEndian.PutUint16(ip[4:], uint16(above))
	} else {
		ip[0], ip[8], ip[9], ip[15], ip[19] = 0x45, 64, proto, 1, 2
		binary.BigEndian.PutUint16(ip[2:], uint16(20+above))
	}
	frame = append(append(eth, ip...), make([]byte, above)...)
	return frame, 14 + len(ip)
}

// vnetSocket sends buffers, each behind its virtio header, through the egress hook of an end.
func vnetSocket(t testing.TB, e *lab.End) (send func([]byte)) {
	t.Helper()

	s, err := e.NewVnetSocket()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })

	return func(b []byte) {
		t.Helper()
		if err := s.Send(b); err != nil {
			t.Fatal(err)
		}
	}
}

// onWire counts every frame that arrives at an end. These are the frames on the wire.
func onWire(t testing.TB, e *lab.End) (arrived func() Pair) {
	t.Helper()
	dp := openTest(t, Options{MaxRules: 64})
	r := Rule{Counter: mustCounter(t, dp, "all")}
	r.Mask.Out.Flags = FlagEgress
	mustAdd(t, dp, r)
	attach(t, dp, e, AttachOptions{Mode: ModeNative, Ingress: true})
	return func() Pair { return readOne(t, dp, r.Counter) }
}

// await waits until want packets have arrived.
func await(t testing.TB, arrived func() Pair, packets uint64) Pair {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		got := arrived()
		if got.Packets >= packets {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d packets were on the wire after 30 s", got.Packets, packets)
		}
	}
}

// encapsulate puts an IPv4 header of that protocol, and more behind it, between Ethernet and IP.
func encapsulate(t testing.TB, e *lab.End, flags int32, proto byte, more []byte) {
	t.Helper()
	outer := append([]byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, proto, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2}, more...)
	code := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.Mov.Imm(asm.R2, int32(len(outer))),
		asm.Mov.Imm(asm.R3, 1), // BPF_ADJ_ROOM_MAC
		asm.Mov.Imm(asm.R4, flags),
		asm.FnSkbAdjustRoom.Call(),
		asm.JNE.Imm(asm.R0, 0, "drop"),
	}
	for i := 0; i < len(outer); i += 4 {
		code = append(code, asm.StoreImm(asm.RFP, int16(i-len(outer)), int64(int32(binary.NativeEndian.Uint32(outer[i:]))), asm.Word))
	}
	code = append(code,
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Imm(asm.R2, 14),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, int32(-len(outer))),
		asm.Mov.Imm(asm.R4, int32(len(outer))),
		asm.Mov.Imm(asm.R5, 0),
		asm.FnSkbStoreBytes.Call(),
		asm.JNE.Imm(asm.R0, 0, "drop"),
		asm.Mov.Imm(asm.R0, -1),
		asm.Return(),
		asm.Mov.Imm(asm.R0, 2).WithSymbol("drop"),
		asm.Return(),
	)
	front(t, e, code)
}

// Flags of bpf_skb_adjust_room.
const (
	fixedGSO  = 1 << 0 // else each segment is shortened by the header that is added
	encapIPv4 = 1 << 1
	encapGRE  = 1 << 3
)

// Guests and taps send buffers whose number of segments follows only from their size. Egress must count what then passes the wire.
func TestUntrustedSegmentsCountAsOnTheWire(t *testing.T) {
	const buffers = 100
	type tunnel struct {
		flags int32
		proto byte
		more  []byte
	}
	ipip, gre := &tunnel{encapIPv4, 4, nil}, &tunnel{fixedGSO | encapIPv4 | encapGRE, 47, []byte{0, 0, 8, 0}}
	tcp := func(v6 bool, options, payload int) func() (frame []byte, transport int) {
		return func() ([]byte, int) { return bigTCP(v6, options, payload) }
	}
	udp := func(v6 bool, payload int) func() (frame []byte, transport int) {
		return func() ([]byte, int) { return bigUDP(v6, payload) }
	}
	for _, c := range []struct {
		name     string
		gso      uint8
		size     int
		build    func() ([]byte, int)
		csum     int
		tunnel   *tunnel
		segments uint64
	}{
		{"tcp4", gsoTCP4, 1400, tcp(false, 0, 28000), 16, nil, 20},
		{"tcp4, the last one short", gsoTCP4, 1400, tcp(false, 0, 28001), 16, nil, 21},
		{"tcp4 with options", gsoTCP4, 1400, tcp(false, 40, 28000), 16, nil, 20},
		{"tcp4 in small segments", gsoTCP4, 8, tcp(false, 0, 1200), 16, nil, 150},
		{"tcp6", gsoTCP6, 1400, tcp(true, 12, 28000), 16, nil, 20},
		{"udp4", gsoUDPL4, 1400, udp(false, 28000), 6, nil, 20},
		{"udp6", gsoUDPL4, 1000, udp(true, 28000), 6, nil, 28},
		{"fragments of udp4", gsoUDP, 1400, udp(false, 28000), 6, nil, 21}, // its header is in the first
		{"tcp4 in ipip", gsoTCP4, 1400, tcp(false, 12, 28000), 16, ipip, 21},
		{"tcp4 in gre", gsoTCP4, 1400, tcp(false, 12, 28000), 16, gre, 20},
		{"udp4 in gre", gsoUDPL4, 1400, udp(false, 28000), 6, gre, 20},
	} {
		run := func(t *testing.T, sees bool) {
			w := testWire(t)
			arrived := onWire(t, w.Near)
			dp := openTest(t, Options{MaxRules: 64})
			r := Rule{Counter: mustCounter(t, dp, "a")}
			r.Key.Out.Flags, r.Mask.Out.Flags = FlagEgress, FlagEgress
			mustAdd(t, dp, r)
			dp.loader.sees = dp.loader.sees && sees
			attach(t, dp, w.Far, AttachOptions{Egress: true})
			if c.tunnel != nil {
				encapsulate(t, w.Far, c.tunnel.flags, c.tunnel.proto, c.tunnel.more)
			}
			send := vnetSocket(t, w.Far)
			frame, transport := c.build()
			b := vnetBuffer(c.gso, c.size, transport, c.csum, frame)
			var wire Pair
			for i := range uint64(buffers) {
				send(b)
				wire = await(t, arrived, (i+1)*c.segments) // one at a time: the ring of the other end holds 256
			}
			if got := readOne(t, dp, r.Counter); got != wire || wire.Packets != buffers*c.segments {
				t.Errorf("counted %+v, on the wire were %+v, want %d packets", got, wire, buffers*c.segments)
			}
		}
		t.Run(c.name, func(t *testing.T) { run(t, true) })
		if c.tunnel == nil {
			t.Run(c.name+", without BTF", func(t *testing.T) { run(t, false) })
		}
	}
}

// Buffers from a tap, like those of a guest, are routed out of a veth. Its egress must count what then passes the wire.
func TestSegmentsFromATapCountAsOnTheWire(t *testing.T) {
	const buffers, segments, size, headers = 100, 20, 1400, 14 + 20 + 20
	w := testWire(t)
	tap := tunIn(t, w.Far.NS, lab.TunOptions{Ethernet: true, Virtio: true})
	near := netip.MustParseAddr("192.0.2.1")
	for _, err := range []error{
		tap.AddAddr(netip.MustParsePrefix("198.51.100.1/24")),
		w.Far.AddAddr(netip.MustParsePrefix("192.0.2.2/24")),
		w.Far.AddNeighbor(near, w.Near.MAC),
		w.Far.NS.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) }),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	arrived := onWire(t, w.Near)
	dp := openTest(t, Options{MaxRules: 64})
	r := Rule{Counter: mustCounter(t, dp, "a")}
	r.Key.Out.Flags, r.Mask.Out.Flags = FlagEgress|FlagIPv4, FlagEgress|FlagIPv4
	mustAdd(t, dp, r)
	attach(t, dp, w.Far, AttachOptions{Egress: true})
	frame, transport := bigTCP(false, 0, segments*size)
	copy(frame, tap.MAC)
	ip := frame[14:34]
	copy(ip[12:], []byte{198, 51, 100, 2, 192, 0, 2, 1})
	binary.BigEndian.PutUint16(ip[10:], ^sum16(ip, 0))
	b := vnetBuffer(gsoTCP4, size, transport, 16, frame)
	for i := range uint64(buffers) {
		if _, err := tap.File().Write(b); err != nil {
			t.Fatal(err)
		}
		await(t, arrived, (i+1)*segments)
	}
	want := Pair{buffers * segments, buffers * segments * (size + headers)}
	if got, wire := readOne(t, dp, r.Counter), arrived(); got != want || wire != want {
		t.Errorf("counted %+v, on the wire were %+v, want %+v", got, wire, want)
	}
}
