package xdp

import "testing"

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
