package ibv

import (
	"encoding/binary"
	"errors"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/probe"
)

// opened returns a Counters with this address. It can only be encoded in a blob.
func opened(h handle) *Counters {
	c := &Counters{}
	c.h = h
	c.attached.Store(true)
	return c
}

// blobSize, val and mask are where verbs.h puts a spec's filters: the ABI test
// compares the same specs with C structs.
var blobLayout = map[specType]struct{ size, val, mask int }{
	specEth: {40, 6, 22}, specIPv4: {24, 8, 16}, specIPv4Ext: {32, 8, 20}, specIPv6: {88, 8, 48},
	specESP: {24, 8, 16}, specTCP: {16, 6, 10}, specUDP: {16, 6, 10}, specVXLANTunnel: {16, 8, 12},
	specGRE: {24, 8, 16}, specMPLS: {16, 8, 12},
	specActionTag: {12, 8, 0}, specActionDrop: {8, 0, 0}, specActionCount: {16, 8, 0},
}

// decodeSpec reads the first spec of b, by the table only: it shares no code with the encoder.
func decodeSpec(t rapid.TB, b []byte) (Spec, []byte) {
	be, ne := binary.BigEndian, binary.NativeEndian
	typ, size := specType(ne.Uint32(b)), int(ne.Uint16(b[4:]))
	at, ok := blobLayout[typ&^specInner]
	if !ok || size != at.size {
		t.Fatalf("type %#x, size %d", uint32(typ), size)
	}
	inner := typ&specInner != 0
	val, mask, rest := b[at.val:size], b[at.mask:size], b[size:]
	eth := func(b []byte) EthFilter {
		return EthFilter{[6]byte(b), [6]byte(b[6:]), be.Uint16(b[12:]), be.Uint16(b[14:])}
	}
	ip4 := func(b []byte) IPv4Filter { return IPv4Filter{[4]byte(b), [4]byte(b[4:])} }
	ip4ext := func(b []byte) IPv4ExtFilter {
		return IPv4ExtFilter{[4]byte(b), [4]byte(b[4:]), b[8], b[9], b[10], b[11]}
	}
	ip6 := func(b []byte) IPv6Filter {
		return IPv6Filter{[16]byte(b), [16]byte(b[16:]), be.Uint32(b[32:]), b[36], b[37], b[38]}
	}
	ports := func(b []byte) TCPUDPFilter { return TCPUDPFilter{be.Uint16(b), be.Uint16(b[2:])} }
	gre := func(b []byte) GREFilter { return GREFilter{be.Uint16(b), be.Uint16(b[2:]), be.Uint32(b[4:])} }
	switch typ &^ specInner {
	case specEth:
		return EthSpec{inner, eth(val), eth(mask)}, rest
	case specIPv4:
		return IPv4Spec{inner, ip4(val), ip4(mask)}, rest
	case specIPv4Ext:
		return IPv4ExtSpec{inner, ip4ext(val), ip4ext(mask)}, rest
	case specIPv6:
		return IPv6Spec{inner, ip6(val), ip6(mask)}, rest
	case specESP:
		return ESPSpec{inner, ESPFilter{be.Uint32(val), be.Uint32(val[4:])}, ESPFilter{be.Uint32(mask), be.Uint32(mask[4:])}}, rest
	case specTCP:
		return TCPSpec{inner, ports(val), ports(mask)}, rest
	case specUDP:
		return UDPSpec{inner, ports(val), ports(mask)}, rest
	case specVXLANTunnel:
		return VXLANSpec{TunnelFilter{be.Uint32(val)}, TunnelFilter{be.Uint32(mask)}}, rest
	case specGRE:
		return GRESpec{inner, gre(val), gre(mask)}, rest
	case specMPLS:
		return MPLSSpec{inner, MPLSFilter{be.Uint32(val)}, MPLSFilter{be.Uint32(mask)}}, rest
	case specActionTag:
		return TagSpec{ne.Uint32(val)}, rest
	case specActionDrop:
		return DropSpec{}, rest
	default:
		return CountSpec{opened(handle(ne.Uint64(val)))}, rest
	}
}

// anySpec draws a spec of any type with any contents.
func anySpec() *rapid.Generator[Spec] {
	return rapid.Custom(func(t *rapid.T) Spec {
		inner := rapid.Bool().Draw(t, "inner")
		switch rapid.IntRange(0, 12).Draw(t, "type") {
		case 0:
			f := rapid.Make[EthFilter]()
			return EthSpec{inner, f.Draw(t, "val"), f.Draw(t, "mask")}
		case 1:
			f := rapid.Make[IPv4Filter]()
			return IPv4Spec{inner, f.Draw(t, "val"), f.Draw(t, "mask")}
		case 2:
			f := rapid.Make[IPv4ExtFilter]()
			return IPv4ExtSpec{inner, f.Draw(t, "val"), f.Draw(t, "mask")}
		case 3:
			f := rapid.Make[IPv6Filter]()
			return IPv6Spec{inner, f.Draw(t, "val"), f.Draw(t, "mask")}
		case 4:
			f := rapid.Make[ESPFilter]()
			return ESPSpec{inner, f.Draw(t, "val"), f.Draw(t, "mask")}
		case 5:
			f := rapid.Make[TCPUDPFilter]()
			return TCPSpec{inner, f.Draw(t, "val"), f.Draw(t, "mask")}
		case 6:
			f := rapid.Make[TCPUDPFilter]()
			return UDPSpec{inner, f.Draw(t, "val"), f.Draw(t, "mask")}
		case 7:
			f := rapid.Make[TunnelFilter]()
			return VXLANSpec{f.Draw(t, "val"), f.Draw(t, "mask")}
		case 8:
			f := rapid.Make[GREFilter]()
			return GRESpec{inner, f.Draw(t, "val"), f.Draw(t, "mask")}
		case 9:
			f := rapid.Make[MPLSFilter]()
			return MPLSSpec{inner, f.Draw(t, "val"), f.Draw(t, "mask")}
		case 10:
			return TagSpec{rapid.Uint32().Draw(t, "tag")}
		case 11:
			return DropSpec{}
		default:
			return CountSpec{opened(handle(rapid.Uint64Min(1).Draw(t, "address")))}
		}
	})
}

// sameCounters compares counters by address: the blob knows no more.
func sameCounters() cmp.Option {
	return cmp.Comparer(func(a, b *Counters) bool { return a.h == b.h })
}

// The bytes in the buffer before the call must not matter.
func TestFlowBlobDecodesToTheSameFlow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := FlowAttr{
			Type: FlowAttrNormal, Flags: FlowFlags(rapid.Uint32().Draw(t, "flags")),
			Priority: rapid.Uint16().Draw(t, "priority"), Port: rapid.Uint8().Draw(t, "port"),
			Specs: rapid.SliceOfN(anySpec(), 0, 255).Draw(t, "specs"),
		}
		before := rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "before")
		b, err := appendFlow(before, want)
		if err != nil {
			t.Fatal(err)
		}
		b = b[len(before):]
		ne := binary.NativeEndian
		if got := int(ne.Uint16(b[8:])); got != len(b) {
			t.Fatalf("the attribute says %d bytes of %d", got, len(b))
		}
		if ne.Uint32(b) != 0 || b[14] != 0 || b[15] != 0 {
			t.Fatalf("comp_mask or padding is set: % x", b[:20])
		}
		got := FlowAttr{
			Type: FlowAttrType(ne.Uint32(b[4:])), Flags: FlowFlags(ne.Uint32(b[16:])),
			Priority: ne.Uint16(b[10:]), Port: b[13],
		}
		n := int(b[12])
		for b = b[20:]; len(b) > 0; {
			var s Spec
			s, b = decodeSpec(t, b)
			got.Specs = append(got.Specs, s)
		}
		if n != len(got.Specs) {
			t.Fatalf("num_of_specs is %d, there are %d", n, len(got.Specs))
		}
		if diff := cmp.Diff(want, got, sameCounters(), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func TestFlowBlobRefusesFlowsWithoutEncoding(t *testing.T) {
	count := CountSpec{opened(1)}
	pointless := &Counters{}
	pointless.h = 1
	for _, c := range []struct {
		name string
		attr FlowAttr
		want error
	}{
		{"COUNT in a sniffer rule counts nothing", FlowAttr{Type: FlowAttrSniffer, Specs: []Spec{count}}, probe.ErrNotSupported},
		{"nor in a default rule", FlowAttr{Type: FlowAttrAllDefault, Specs: []Spec{EthSpec{}, count}}, probe.ErrNotSupported},
		{"nor in one of multicast", FlowAttr{Type: FlowAttrMCDefault, Specs: []Spec{count}}, probe.ErrNotSupported},
		{"no counters", FlowAttr{Specs: []Spec{CountSpec{}}}, ErrClosed},
		{"closed counters", FlowAttr{Specs: []Spec{CountSpec{opened(0)}}}, ErrClosed},
		{"counters without an attached point", FlowAttr{Specs: []Spec{CountSpec{pointless}}}, syscall.EINVAL},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := appendFlow(nil, c.attr); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
	for _, s := range []Spec{nil, &CountSpec{opened(1)}, (*CountSpec)(nil), &ESPSpec{}} {
		for _, typ := range []FlowAttrType{FlowAttrNormal, FlowAttrSniffer} {
			a := FlowAttr{Type: typ, Specs: []Spec{s}}
			if _, err := appendFlow(nil, a); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("a spec of type %T is encoded: %v", s, err)
			}
			if err := a.Check(); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("a spec of type %T is checked: %v", s, err)
			}
		}
	}
	if _, err := appendFlow(nil, FlowAttr{Specs: make([]Spec, 256)}); err == nil {
		t.Error("256 specs fit in eight bits")
	}
	if _, err := appendFlow(nil, FlowAttr{Type: FlowAttrSniffer, Specs: []Spec{EthSpec{}}}); err != nil {
		t.Errorf("a sniffer rule without COUNT: %v", err)
	}
}

// Each rule of uverbs and mlx5 in rdma.md 1.3 comes with its nearest valid neighbor (errno 0).
func TestFlowCheckNamesTheBrokenRule(t *testing.T) {
	tcp, udp := TCPSpec{}, UDPSpec{}
	proto := func(val, mask uint8) IPv4ExtSpec {
		return IPv4ExtSpec{Val: IPv4ExtFilter{Proto: val}, Mask: IPv4ExtFilter{Proto: mask}}
	}
	etherType := func(val, mask uint16) EthSpec {
		return EthSpec{Val: EthFilter{EtherType: val}, Mask: EthFilter{EtherType: mask}}
	}
	specs := func(s ...Spec) FlowAttr { return FlowAttr{Specs: s} }
	for _, c := range []struct {
		name string
		attr FlowAttr
		want syscall.Errno
	}{
		{"nothing at all", FlowAttr{}, 0},
		{"an unknown type", FlowAttr{Type: 4}, syscall.EOPNOTSUPP},
		{"the deprecated flag", FlowAttr{Flags: 1}, syscall.EINVAL},
		{"both flags", FlowAttr{Flags: FlowDontTrap | FlowEgress}, syscall.EOPNOTSUPP},
		{"a value outside its mask", specs(UDPSpec{Val: TCPUDPFilter{DstPort: 3}, Mask: TCPUDPFilter{DstPort: 1}}), syscall.EINVAL},
		{"DONT_TRAP in a default rule", FlowAttr{Type: FlowAttrAllDefault, Flags: FlowDontTrap}, syscall.EINVAL},
		{"EGRESS in a default rule", FlowAttr{Type: FlowAttrMCDefault, Flags: FlowEgress}, syscall.EINVAL},
		{"priority 15", FlowAttr{Priority: 15}, 0},
		{"priority 16", FlowAttr{Priority: 16}, syscall.ENOMEM},
		{"ten specs", specs(make10(DropSpec{})...), 0},
		{"eleven", specs(append(make10(DropSpec{}), DropSpec{})...), syscall.EINVAL},
		{"one COUNT", specs(CountSpec{opened(1)}), 0},
		{"COUNT without an attached point", specs(CountSpec{&Counters{}}), syscall.EINVAL},
		{"two COUNT", specs(CountSpec{opened(1)}, CountSpec{opened(1)}), syscall.EINVAL},
		{"TOS", specs(IPv4ExtSpec{Mask: IPv4ExtFilter{TOS: 1}}), 0},
		{"TTL", specs(IPv4ExtSpec{Mask: IPv4ExtFilter{TTL: 1}}), syscall.EOPNOTSUPP},
		{"IPv4 flags", specs(IPv4ExtSpec{Mask: IPv4ExtFilter{Flags: 1}}), syscall.EOPNOTSUPP},
		{"a TTL that is not matched", specs(IPv4ExtSpec{Val: IPv4ExtFilter{TTL: 1}}), 0},
		{"hop limit", specs(IPv6Spec{Mask: IPv6Filter{HopLimit: 1}}), syscall.EOPNOTSUPP},
		{"a flow label", specs(IPv6Spec{Mask: IPv6Filter{FlowLabel: 0xfffff}}), 0},
		{"one of 21 bits", specs(IPv6Spec{Val: IPv6Filter{FlowLabel: 1 << 20}}), syscall.EINVAL},
		{"a VNI", specs(VXLANSpec{Mask: TunnelFilter{0xffffff}}), 0},
		{"one of 25 bits", specs(VXLANSpec{Mask: TunnelFilter{1 << 24}}), syscall.EINVAL},
		{"a GRE key", specs(GRESpec{Mask: GREFilter{Key: 1}}), 0},
		{"GRE flags", specs(GRESpec{Mask: GREFilter{CKSRes0Ver: 1}}), syscall.EOPNOTSUPP},
		{"an SPI", specs(ESPSpec{Mask: ESPFilter{SPI: 1}}), 0},
		{"an ESP sequence number", specs(ESPSpec{Mask: ESPFilter{Seq: 1}}), syscall.EOPNOTSUPP},
		{"a tag", specs(TagSpec{0xffffff}), 0},
		{"one of 25 bits", specs(TagSpec{1 << 24}), syscall.EINVAL},
		{"TCP behind a protocol that is TCP's", specs(proto(6, 0xff), tcp), 0},
		{"behind one that is not matched", specs(proto(17, 0), tcp), 0},
		{"in front of one that is not matched", specs(tcp, proto(17, 0)), 0},
		{"behind UDP's", specs(proto(17, 0xff), tcp), syscall.EINVAL},
		{"behind a part of TCP's", specs(proto(6, 0x0f), tcp), syscall.EINVAL},
		{"UDP behind IPv6 that says so", specs(IPv6Spec{Val: IPv6Filter{NextHdr: 17}, Mask: IPv6Filter{NextHdr: 0xff}}, udp), 0},
		{"TCP and UDP", specs(tcp, udp), syscall.EINVAL},
		{"inner TCP and outer UDP", specs(udp, TCPSpec{Inner: true}), 0},
		{"GRE and UDP", specs(GRESpec{}, udp), syscall.EINVAL},
		{"EtherType of IPv4 with IPv4", specs(etherType(0x0800, 0xffff), IPv4Spec{}), 0},
		{"with IPv4_EXT", specs(etherType(0x0800, 0xffff), IPv4ExtSpec{}), 0},
		{"with IPv6", specs(etherType(0x0800, 0xffff), IPv6Spec{}), syscall.EINVAL},
		{"MPLS with IPv6", specs(etherType(0x8847, 0xffff), IPv6Spec{}), 0},
		{"a part of an EtherType with IPv4", specs(etherType(0x0800, 0xff00), IPv4Spec{}), syscall.EINVAL},
		{"without", specs(etherType(0x0800, 0xff00)), 0},
		{"EtherType of IPv6 outside, IPv4 inside", specs(etherType(0x86dd, 0xffff), IPv4Spec{Inner: true}), 0},
		{"COUNT and DONT_TRAP", FlowAttr{Flags: FlowDontTrap, Specs: []Spec{CountSpec{opened(1)}}}, 0},
		{"anything in a sniffer rule", FlowAttr{Type: FlowAttrSniffer, Specs: []Spec{tcp, udp}}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.attr.Check()
			if c.want == 0 {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if got, want := errors.Is(err, probe.ErrNotSupported), c.want == syscall.EOPNOTSUPP; got != want {
				t.Errorf("%v is ErrNotSupported: %v", err, got)
			}
		})
	}
	if err := (FlowAttr{Specs: []Spec{nil}}).Check(); err == nil {
		t.Error("a nil spec passes")
	}
	if err := (FlowAttr{Type: FlowAttrSniffer, Specs: []Spec{CountSpec{opened(1)}}}).Check(); !errors.Is(err, probe.ErrNotSupported) {
		t.Errorf("COUNT in a sniffer rule: %v", err)
	}
}

// make10 is the spec ten times.
func make10(s Spec) []Spec {
	return []Spec{s, s, s, s, s, s, s, s, s, s}
}
