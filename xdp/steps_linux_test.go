package xdp

import (
	"encoding/binary"
	"runtime"
	"slices"
	"testing"

	"github.com/cilium/ebpf/features"

	"github.com/flowtally/flowtally/internal/lab/interp"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// needInlineCPU asks for a kernel that writes the number of the CPU into the program.
func needInlineCPU(t *testing.T) {
	t.Helper()
	need.BPF(t)
	if v, err := features.LinuxVersionCode(); err != nil || v < 6<<16|10<<8 || runtime.GOARCH != "amd64" {
		need.Missing(t, "kernel:6.10", "the program calls the kernel for the number of the CPU, except on x86-64 since Linux 6.10")
	}
}

// A function's return costs some CPUs as much as five loads, and the program runs for every packet of the interface.
// TestPacketsOfGeneratedSetsTouchFewLines of internal/bench/xdprows follows the packets of many rules.
func TestOrdinaryPacketsOfOneFlowCallNoFunction(t *testing.T) {
	needInlineCPU(t)
	dp := openTest(t, Options{MaxRules: 1024})
	mustAdd(t, dp, exact4(1, 2, 3, 4, mustCounter(t, dp, "a")))
	p, err := dp.Load(0, HookIngress, false)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()

	arp := make([]byte, 64)
	binary.BigEndian.PutUint16(arp[12:], 0x0806)
	for _, tt := range []struct {
		name  string
		frame []byte
		most  int // instructions; docs/classifier.md has the measured numbers
	}{
		{"match", udp4(1, 2, 3, 4, 64), 60},
		{"another address", udp4(1, 9, 3, 4, 64), 20},
		{"another port", udp4(1, 2, 3, 9, 64), 20},
		{"ARP", arp, 18},
	} {
		m, err := interp.Loaded(p.prog)
		if err != nil {
			t.Fatal(err)
		}
		verdict, c, err := m.Run(m.Packet(tt.frame))
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		t.Logf("%s: %d instructions, %d calls, %d lines of maps", tt.name, c.Instructions, c.Calls, c.Lines)
		if verdict != verdictPass || c.Calls != 0 || c.Instructions > tt.most {
			t.Errorf("%s: verdict %d, %d calls and %d instructions; want %d, none and at most %d",
				tt.name, verdict, c.Calls, c.Instructions, verdictPass, tt.most)
		}
	}
}

// frame6 is a frame like that of udp4, from ::src to ::dst.
func frame6(src, dst uint32, sport, dport uint16) []byte {
	b := make([]byte, 80)
	copy(b, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60})
	b[20], b[21] = 17, 64
	binary.BigEndian.PutUint16(b[18:], uint16(len(b)-54))
	binary.BigEndian.PutUint32(b[34:], src)
	binary.BigEndian.PutUint32(b[50:], dst)
	binary.BigEndian.PutUint16(b[54:], sport)
	binary.BigEndian.PutUint16(b[56:], dport)
	binary.BigEndian.PutUint16(b[58:], uint16(len(b)-54))
	return b
}

// withTag returns a frame with one tag more, that of VLAN 5.
func withTag(frame []byte) []byte {
	return slices.Insert(slices.Clone(frame), 12, 0x81, 0, 0, 5)
}

// withExtension returns a frame of IPv6 with a header of destination options, which has 8 bytes of padding.
func withExtension(frame []byte) []byte {
	b := slices.Insert(slices.Clone(frame), 54, frame[20], 0, 1, 4, 0, 0, 0, 0)
	b[20] = 60
	return b
}

// exact6 is the rule of the frames of frame6.
func exact6(src, dst uint32, sport, dport uint16, counter uint32) Rule {
	r := exact4(0, 0, sport, dport, counter)
	k, m := &r.Key.Out, &r.Mask.Out
	k.Flags = k.Flags&^FlagIPv4 | FlagIPv6
	m.Flags = m.Flags&^FlagIPv4 | FlagIPv6
	clear(k.Addr[:])
	binary.BigEndian.PutUint32(k.Addr[12:], src)
	binary.BigEndian.PutUint32(k.Addr[28:], dst)
	for i := range m.Addr {
		m.Addr[i] = 255
	}
	return r
}

// onVLAN returns a rule that also wants one tag, of VLAN 5.
func onVLAN(r Rule) Rule {
	r.Key.Out.Flags |= FlagTag1
	r.Mask.Out.Flags |= FlagTag1 | FlagTag2
	r.Key.Out.VLAN[0] = [2]byte{0, 5}
	r.Mask.Out.VLAN[0] = [2]byte{0x0f, 0xff}
	return r
}

// under returns a rule without the low bits of its source, which are those of the last four bytes of the address.
func under(r Rule, bits int) Rule {
	end := 4
	if r.Mask.Out.Flags&FlagIPv6 != 0 {
		end = 16
	}
	mask := uint32(0xffffffff) << bits
	m, k := r.Mask.Out.Addr[end-4:end], r.Key.Out.Addr[end-4:end]
	binary.BigEndian.PutUint32(m, mask)
	binary.BigEndian.PutUint32(k, binary.BigEndian.Uint32(k)&mask)
	return r
}

// keyOfFrame is the key of a frame of udp4 or frame6, with the tag and the extension header that the test may have added.
func keyOfFrame(frame []byte) Key {
	r := exact4(0, 0, 0, 0, 0)
	at := frame[14:]
	if binary.BigEndian.Uint16(frame[12:]) == 0x8100 {
		r = onVLAN(r)
		at = frame[18:]
	}
	k := &r.Key.Out
	ports := at[20:]
	if at[0]>>4 == 6 {
		k.Flags = k.Flags&^FlagIPv4 | FlagIPv6
		copy(k.Addr[:], at[8:40])
		ports = at[40:]
		if at[6] != 17 {
			ports = at[48:]
		}
	} else {
		copy(k.Addr[:], at[12:20])
	}
	copy(k.L4[:], ports[:4])
	return r.Key
}

// checkLines compares the lines that a packet has touched with those of the model, which leaves out the counter and its mark.
func checkLines(t *testing.T, dp *Datapath, key Key, touched int, miss bool) {
	t.Helper()
	if !miss {
		touched -= 2
	}
	if _, _, w := dp.tables.find(dp.tables.inSearch(), &key); w.Lines != touched {
		t.Fatalf("%+v: %d lines without the counter, and the model says %d", key.Out, touched, w.Lines)
	}
}

// sharedTags counts the masks among the first whose slots have another key with the tag of this one. A function compares the slots
// behind it, for about one packet in 16,384. The tags are of the secret, which each Datapath draws for itself.
func sharedTags(dp *Datapath, key Key) (n int) {
	hashed := dp.tables.inSearch()
	for _, u := range hashed[:min(nearTuples, len(hashed))] {
		if !u.hashed {
			continue
		}
		packed := u.pack(nil, key.words())
		hash := dp.tables.hashOf(u, packed)
		slot := lines{}.probe(&dp.tables.table, &hash, tagOf(hash))
		if slot != 0 && !slices.Equal(packed, dp.tables.entries.packed(unitOf(slot), len(packed))) {
			n++
		}
	}
	return n
}

// The packets have one header more than those of TestOrdinaryPacketsOfOneFlowCallNoFunction, or rules of more masks. The test prints the
// second table of docs/classifier.md, "Constants".
func TestPacketsCallNoFunction(t *testing.T) {
	needInlineCPU(t)
	v4 := func(i uint32) []byte { return udp4(1<<20+i<<8, 9, 5, uint16(i), 64) }
	v6 := func(i uint32) []byte { return frame6(1<<20+i<<8, 9, 5, uint16(i)) }
	rule4 := func(i, id uint32) Rule { return exact4(1<<20+i<<8, 9, 5, uint16(i), id) }
	rule6 := func(i, id uint32) Rule { return exact6(1<<20+i<<8, 9, 5, uint16(i), id) }
	masked := func(rule func(i, id uint32) Rule, masks uint32) func(i, id uint32) Rule {
		return func(i, id uint32) Rule { return under(rule(i, id), int(i%masks)) }
	}
	tagged := func(rule func(i, id uint32) Rule) func(i, id uint32) Rule {
		return func(i, id uint32) Rule { return onVLAN(rule(i, id)) }
	}
	for _, tt := range []struct {
		name  string
		rules int
		rule  func(i, id uint32) Rule
		frame func(i uint32) []byte
		calls int  // of one packet, at most
		miss  bool // no rule matches
	}{
		{"exact IPv4", 1000, rule4, v4, 0, false},
		{"exact IPv4, tagged packets", 1000, rule4, func(i uint32) []byte { return withTag(v4(i)) }, 0, false},
		{"one flow of IPv4, tagged packets", 1, rule4, func(i uint32) []byte { return withTag(v4(i)) }, 0, false},
		{"exact IPv4 and a VLAN", 1000, tagged(rule4), func(i uint32) []byte { return withTag(v4(i)) }, 0, false},
		{"exact IPv4 and a VLAN, untagged packets", 1000, tagged(rule4), v4, 0, true},
		{"two masks of IPv4", 1000, masked(rule4, 2), v4, 0, false},
		{"two masks of IPv4 and a VLAN", 1000, tagged(masked(rule4, 2)), func(i uint32) []byte { return withTag(v4(i)) }, 0, false},
		{"trees of IPv4", 1000, masked(rule4, 8), v4, 0, false},
		{"trees of IPv4, tagged packets", 1000, masked(rule4, 8), func(i uint32) []byte { return withTag(v4(i)) }, 0, false},
		{"trees of IPv4 and a VLAN", 1000, tagged(masked(rule4, 8)), func(i uint32) []byte { return withTag(v4(i)) }, 0, false},
		{"exact IPv6", 1000, rule6, v6, 0, false},
		{"exact IPv6, tagged packets", 1000, rule6, func(i uint32) []byte { return withTag(v6(i)) }, 0, false},
		{"exact IPv6, an extension header", 1000, rule6, func(i uint32) []byte { return withExtension(v6(i)) }, 2, false},
		{"two masks of IPv6", 1000, masked(rule6, 2), v6, 0, false},
		{"trees of IPv6", 1000, masked(rule6, 8), v6, 0, false},
		{"trees of IPv6, an extension header", 1000, masked(rule6, 8), func(i uint32) []byte { return withExtension(v6(i)) }, 2, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dp := openTest(t, Options{MaxRules: 2048})
			id := mustCounter(t, dp, "a")
			var rules []Rule
			for i := range uint32(tt.rules) {
				r := tt.rule(i, id)
				r.Order = i
				r.Drop = true // so that the verdict tells a match
				rules = append(rules, r)
			}
			mustAdd(t, dp, rules...)
			p := program(t, dp, HookIngress, 1)
			m, err := interp.Loaded(p)
			if err != nil {
				t.Fatal(err)
			}

			buffer := tt.frame(0)
			context := m.Packet(buffer)
			var instructions, calls, lines int
			for i := range uint32(tt.rules) {
				copy(buffer, tt.frame(i))
				verdict, c, err := m.Run(context)
				if err != nil {
					t.Fatal(err)
				}
				if match := verdict == xdpDrop; match == tt.miss {
					t.Fatalf("packet %d: match %v", i, match)
				}
				instructions += c.Instructions
				calls += c.Calls
				lines += c.Lines
				key := keyOfFrame(tt.frame(i))
				checkLines(t, dp, key, c.Lines, tt.miss)
				if most := tt.calls + sharedTags(dp, key); c.Calls > most {
					t.Errorf("packet %d: %d calls, want at most %d", i, c.Calls, most)
					break
				}
			}
			mean := func(sum int) float64 { return float64(sum) / float64(tt.rules) }
			t.Logf("a packet: %.1f instructions, %.2f calls, %.1f lines; %d instructions verified",
				mean(instructions), mean(calls), mean(lines), dp.Stats().Insns)
		})
	}
}

// The masks behind the second are compared in functions, which load their constants. The trees follow for the packets of other rules.
func TestModelKnowsTheLinesBehindTheSecondMask(t *testing.T) {
	needInlineCPU(t)
	dp := openTest(t, Options{MaxRules: 2048})
	id := mustCounter(t, dp, "a")
	source := func(i uint32) uint32 { return 1<<24 + i<<8 }
	n := uint32(0)
	for mask, rules := range []int{1, 10, 300, 1000, 20} {
		var come []Rule
		for range rules {
			r := under(exact4(source(n), 9, 5, 7, id), mask)
			if mask == 4 {
				r.Ports[0].Dst = Range{First: 1, Last: 7} // for the trees
				r.Key.Out.L4, r.Mask.Out.L4 = [4]byte{}, [4]byte{}
			}
			r.Order = n
			r.Drop = true
			come = append(come, r)
			n++
		}
		mustAdd(t, dp, come...)
	}
	if s := dp.Stats(); s.Hashed != 4 {
		t.Fatalf("%d masks are hashed, want 4", s.Hashed)
	}

	m, err := interp.Loaded(program(t, dp, HookIngress, 1))
	if err != nil {
		t.Fatal(err)
	}
	buffer := udp4(source(0), 9, 5, 7, 64)
	context := m.Packet(buffer)
	for i := range n + 100 { // the last match no rule
		copy(buffer, udp4(source(i), 9, 5, 7, 64))
		verdict, c, err := m.Run(context)
		if err != nil {
			t.Fatal(err)
		}
		checkLines(t, dp, keyOfFrame(buffer), c.Lines, verdict != xdpDrop)
	}
}
