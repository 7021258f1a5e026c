package xdp

import (
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab"
)

// For a generic XDP program with frags, the kernel copies each socket buffer, and shows TCX the frame from the IP header on. Rules
// of every layer must still match.
func TestTCXCountsWireBytesAfterGenericXDPCopiedTheBuffer(t *testing.T) {
	const size = 100
	flags := func(key, mask Flags) (r Rule) {
		r.Key.Out.Flags, r.Mask.Out.Flags = key, mask|FlagEgress
		return r
	}
	eth := flags(FlagEth|FlagIPv4, FlagEth|FlagIPv4|FlagTag1)
	eth.Key.Out.EthDst, eth.Mask.Out.EthDst = [6]byte{2, 0, 0, 0, 0, 1}, [6]byte{255, 255, 255, 255, 255, 255}
	eth.Key.Out.EthSrc, eth.Mask.Out.EthSrc = [6]byte{2, 0, 0, 0, 0, 2}, [6]byte{255, 255, 255, 255, 255, 255}
	eth.Key.Out.EthType, eth.Mask.Out.EthType = [2]byte{8, 0}, [2]byte{255, 255}
	other := flags(FlagEth, FlagEth|FlagIPv4|FlagIPv6)
	other.Key.Out.EthType, other.Mask.Out.EthType = [2]byte{0x88, 0xb5}, [2]byte{255, 255}
	tag := flags(FlagTag1|FlagIPv4, FlagTag1|FlagTag2|FlagIPv4)
	tag.Key.Out.VLAN[0], tag.Mask.Out.VLAN[0] = [2]byte{0x20, 100}, [2]byte{255, 255}
	tags := flags(FlagTag1|FlagTag2|FlagIPv4, FlagTag1|FlagTag2|FlagIPv4)
	tags.Key.Out.VLAN[1], tags.Mask.Out.VLAN[1] = [2]byte{0x0f, 0xa1}, [2]byte{255, 255}
	inner := flags(FlagTunnel, FlagTunnel)
	inner.Key.In.EthDst, inner.Mask.In.EthDst = [6]byte{2, 0, 0, 0, 0, 1}, [6]byte{255, 255, 255, 255, 255, 255}
	inner.Key.In.L4, inner.Mask.In.L4 = [4]byte{0, 0, 0, 53}, [4]byte{0, 0, 255, 255}

	udp := udp4(0x08000001, 0x0a000002, 1000, 53, size) // read as Ethernet, the IP header would be IPv4
	with := func(at int, more ...byte) []byte { return append(append(udp[:at:at], more...), udp[at:]...) }
	unknown := append([]byte(nil), udp...)
	unknown[12], unknown[13] = 0x88, 0xb5
	vxlan := append(udp4(1, 2, 1000, 4789, 50+size)[:50:50], udp...)
	copy(vxlan[42:], []byte{8, 0, 0, 0, 0, 0, 7, 0})
	tcp6, tcp6At := bigTCP(true, 12, 20001)
	tcp4, tcp4At := bigTCP(false, 0, 4000)

	for _, c := range []struct {
		name  string
		rule  Rule
		push  bool // the tag is beside the frame
		frame []byte
		want  Pair
		gso   []byte // a virtio header, with which the buffer stands for segments
	}{
		{"ports", exact4(0x08000001, 0x0a000002, 1000, 53, 0), false, udp, Pair{1, size}, nil},
		{"addresses of ethernet", eth, false, udp, Pair{1, size}, nil},
		{"another ethertype", other, false, unknown, Pair{1, size}, nil},
		{"a tag beside the frame", tag, true, udp, Pair{1, size + 4}, nil},
		{"a tag in the frame", tag, false, with(12, 0x81, 0, 0x20, 100), Pair{1, size + 4}, nil},
		{"two tags in the frame", tags, false, with(12, 0x88, 0xa8, 0x20, 100, 0x81, 0, 0x0f, 0xa1), Pair{1, size + 8}, nil},
		{"a tag beside and one in the frame", tags, true, with(12, 0x81, 0, 0x0f, 0xa1), Pair{1, size + 8}, nil},
		{"inside vxlan", inner, false, vxlan, Pair{1, 50 + size}, nil},
		{"segments of tcp4", flags(FlagIPv4|FlagL4, FlagIPv4|FlagL4), false, tcp4, Pair{4, 4*(14+20+20) + 4000},
			vnetBuffer(gsoTCP4, 1000, tcp4At, 16, nil)},
		{"segments of tcp6", flags(FlagIPv6|FlagL4, FlagIPv6|FlagL4), false, tcp6, Pair{21, 21*(14+40+32) + 20001},
			vnetBuffer(gsoTCP6, 1000, tcp6At, 16, nil)},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := testWire(t)
			ownerWith(t, w.Near, link.XDPGenericMode, unix.BPF_F_XDP_HAS_FRAGS, append(verdict(xdpPass), asm.Return()))
			dp := openTest(t, Options{MaxRules: 64})
			c.rule.Counter = mustCounter(t, dp, "a")
			mustAdd(t, dp, c.rule)
			attach(t, dp, w.Near, AttachOptions{Mode: ModeTCX, Ingress: true})
			if c.push {
				pushTag(t, w.Far, 1<<13|100)
			}
			const packets = 10
			if c.gso == nil {
				s, err := w.Far.NewSender([]lab.Stream{{Frames: [][]byte{c.frame}}}, lab.SenderOptions{Stack: true})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				if err := s.Run(t.Context(), packets); err != nil {
					t.Fatal(err)
				}
			} else {
				send := vnetSocket(t, w.Far)
				for range packets {
					send(append(c.gso[:10:10], c.frame...))
				}
			}
			want := Pair{packets * c.want.Packets, packets * c.want.Bytes}
			got := await(t, func() Pair { return readOne(t, dp, c.rule.Counter) }, want.Packets)
			if got != want {
				t.Errorf("counted %+v, want %+v", got, want)
			}
		})
	}
}
