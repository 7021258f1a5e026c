package xdp

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/interp"
)

// The program of a single rule compares fields where a frame has them, by the shape of the rule's masks.
func TestProgramOfOneRuleMatchesTheFramesOfTheRule(t *testing.T) {
	needInlineCPU(t)
	const (
		src, dst     = 0xc0000263, 0xcb007107
		sport, dport = 4660, 53
	)
	tests := []struct {
		name         string
		src, dst     uint32 // masks
		sport, dport uint16
		proto        uint8
	}{
		{"all", 0xffffffff, 0xffffffff, 0xffff, 0xffff, 0xff},
		{"destination", 0, 0xffffffff, 0, 0xffff, 0xff},
		{"source", 0xffffffff, 0, 0xffff, 0, 0xff},
		{"prefixes", 0xffffff00, 0xfffe0000, 0, 0, 0},
		{"the lower halves of the addresses", 0x0000ffff, 0x0000ffff, 0, 0, 0},
		{"the upper halves of the addresses", 0xffff0000, 0xffff0000, 0, 0, 0xff},
		{"bits of the ports", 0, 0, 0x00f0, 0x0fff, 0xff},
		{"a destination port and a bit of the source port", 0, 0, 1, 0xffff, 0xff},
		{"protocol", 0, 0, 0, 0, 0xff},
		{"IPv4", 0, 0, 0, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dp := openTest(t, Options{MaxRules: 1024})
			r := Rule{Counter: mustCounter(t, dp, "a"), Drop: true}
			k, m := &r.Key.Out, &r.Mask.Out
			k.Flags, m.Flags = FlagIPv4, FlagIPv4|FlagEgress
			if tt.sport|tt.dport != 0 {
				k.Flags |= FlagL4
				m.Flags |= FlagL4
			}
			k.Proto, m.Proto = 17&tt.proto, tt.proto
			binary.BigEndian.PutUint32(k.Addr[:], src&tt.src)
			binary.BigEndian.PutUint32(m.Addr[:], tt.src)
			binary.BigEndian.PutUint32(k.Addr[4:], dst&tt.dst)
			binary.BigEndian.PutUint32(m.Addr[4:], tt.dst)
			binary.BigEndian.PutUint16(k.L4[:], sport&tt.sport)
			binary.BigEndian.PutUint16(m.L4[:], tt.sport)
			binary.BigEndian.PutUint16(k.L4[2:], dport&tt.dport)
			binary.BigEndian.PutUint16(m.L4[2:], tt.dport)
			mustAdd(t, dp, r)
			p, err := dp.Load(0, HookIngress, false)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if dp.loader.config(dp.constants, site{hookKey: hookKey{0, HookIngress}}).One == (flowtallyFtOneRule{}) {
				t.Fatal("the rule has no program of its own")
			}

			machine, err := interp.Loaded(p.prog)
			if err != nil {
				t.Fatal(err)
			}
			check := func(frame []byte, want bool) {
				t.Helper()
				verdict, _, err := machine.Run(machine.Packet(frame))
				if err != nil {
					t.Fatal(err)
				}
				if (verdict != verdictPass) != want {
					t.Errorf("verdict %d, and the rule matches: %v\n%x", verdict, want, frame)
				}
			}
			plain := udp4(src, dst, sport, dport, 64)
			ways := []struct {
				name   string
				change func([]byte) []byte
				ported bool
			}{
				{"plain", slices.Clone[[]byte], true},
				{"tagged", withTag, true},
				{"two tags", func(b []byte) []byte { return withTag(withTag(b)) }, true},
				{"options", func(b []byte) []byte {
					b = slices.Insert(slices.Clone(b), 34, 1, 1, 1, 1)
					b[14] = 0x46
					return b
				}, true},
				{"a later fragment", func(b []byte) []byte {
					b = slices.Clone(b)
					b[20], b[21] = 0, 9
					return b
				}, false},
			}
			for _, way := range ways {
				t.Run(way.name, func(t *testing.T) {
					ports := tt.sport|tt.dport != 0
					check(way.change(plain), way.ported || !ports)
					for bit := range 96 {
						changed := slices.Clone(plain)
						changed[26+bit/8] ^= 0x80 >> (bit % 8)
						at := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, tt.src), tt.dst)
						at = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(at, tt.sport), tt.dport)
						want := at[bit/8]&(0x80>>(bit%8)) == 0
						check(way.change(changed), want && (way.ported || !ports))
					}
					changed := slices.Clone(plain)
					changed[23] = 6
					check(way.change(changed), tt.proto == 0)
					changed[23] = 1
					check(way.change(changed), tt.proto == 0)
				})
			}
			arp := make([]byte, 64)
			binary.BigEndian.PutUint16(arp[12:], 0x0806)
			check(arp, false)
			check(withTag(arp), false)
			check(frame6(1, 2, 3, 4), false)
			check(plain[:20], false)
		})
	}
}
