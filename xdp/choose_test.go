package xdp

import (
	"encoding/binary"
	"testing"
)

// Two masks have ten rules each, and hashing pays for one of them alone.
func TestTheSameMaskIsHashedEveryTime(t *testing.T) {
	var rules []Rule
	for i := range byte(10) {
		tos, ttl := Rule{Order: uint32(i)}, Rule{Order: uint32(i) + 10}
		tos.Key.Out.TOS, tos.Mask.Out.TOS = i, 0xff
		ttl.Key.Out.TTL, ttl.Mask.Out.TTL = i, 0xff
		rules = append(rules, tos, ttl)
	}
	ranged := Rule{Order: 20}
	ranged.Key.Out.Flags, ranged.Mask.Out.Flags = FlagL4, FlagL4
	ranged.Ports[0].Dst = Range{First: 1, Last: 5}
	rules = append(rules, ranged)

	var first Key
	for round := range 30 {
		m, err := NewModel(rules, len(rules), 0, true)
		if err != nil {
			t.Fatal(err)
		}
		var hashed []Key
		m.Hashed(func(mask Key, _ int) { hashed = append(hashed, mask) })
		if len(hashed) != 1 {
			t.Fatalf("%d masks are hashed, want 1", len(hashed))
		}
		if round == 0 {
			first = hashed[0]
		}
		if hashed[0] != first {
			t.Fatalf("round %d hashes mask %+v, and the first one hashed %+v", round, hashed[0].Out, first.Out)
		}
	}
}

// A hit ends the search only if no rule of the trees wins over it. With longer prefixes in front, as in a routing table, the
// trees are walked behind each hit, so a probe saves nothing.
func TestMaskIsHashedWhereAHitEndsTheSearch(t *testing.T) {
	prefix := func(bits int, network, order uint32) Rule {
		r := Rule{Order: order}
		r.Key.Out.Flags, r.Mask.Out.Flags = FlagIPv4, FlagIPv4
		binary.BigEndian.PutUint32(r.Mask.Out.Addr[4:], ^uint32(0)<<(32-bits))
		binary.BigEndian.PutUint32(r.Key.Out.Addr[4:], network<<(32-bits))
		return r
	}
	for _, longerFirst := range []bool{false, true} {
		var rules []Rule
		for i := range uint32(500) {
			rules = append(rules, prefix(24, i, 1000+i))
		}
		others := uint32(2000) // behind the 500 rules
		if longerFirst {
			others = 0
		}
		for i := range uint32(200) {
			rules = append(rules, prefix(32, i, others+2*i), prefix(28, i, others+2*i+1))
		}

		m, err := NewModel(rules, len(rules), 0, true)
		if err != nil {
			t.Fatal(err)
		}
		hashed := 0
		m.Hashed(func(_ Key, rules int) { hashed += rules })
		want := 500
		if longerFirst {
			want = 0
		}
		if hashed != want {
			t.Errorf("longer prefixes first %t: %d rules are hashed, want %d", longerFirst, hashed, want)
		}
	}
}
