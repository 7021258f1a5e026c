package xdp

import (
	"encoding/binary"
	"testing"
)

// from6 is the rule of an IPv6 source.
func from6(src [16]byte, counter uint32) Rule {
	r := Rule{Counter: counter, Drop: true}
	k, m := &r.Key.Out, &r.Mask.Out
	k.Flags, m.Flags = FlagIPv6, FlagIPv6|FlagEgress
	copy(k.Addr[:], src[:])
	for i := range 16 {
		m.Addr[i] = 0xff
	}
	return r
}

// udp6 is a frame from an IPv6 source.
func udp6(src [16]byte) []byte {
	b := make([]byte, 80)
	copy(b, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd})
	b[14], b[19], b[20], b[21] = 0x60, 26, 17, 64
	copy(b[22:], src[:])
	b[38], b[57], b[59] = 0x20, 1, 26
	return b
}

// collide finds, with the secret, n addresses of 2001:db8::/64 whose rules lie in one place of a
// table of so many slots with one tag.
func collide(s *secret, n, slots int) (all [][16]byte) {
	src := [16]byte{0x20, 0x01, 0x0d, 0xb8}
	r := from6(src, 0)
	u := newTuple(0, r.Mask.words())
	for i := uint64(0); len(all) < n; i++ {
		binary.BigEndian.PutUint64(src[8:], i)
		r.Key.Out.Addr = [32]byte(append(src[:], make([]byte, 16)...))
		var buf words
		h := s.hash(u.id, u.maskWords, u.pack(buf[:0], r.Key.words()))
		// The first tag and home that are asked for: any will do.
		if tagOf(h) == 1 && h&uint64(slots-1)/slotProbes == 3 {
			all = append(all, src)
		}
	}
	return all
}

// Addresses that collide in one table are spread in a table with another secret. Without the secret, nobody can compute others. The
// secret lives as long as the pins.
func TestNobodyChoosesAddressesThatCollide(t *testing.T) {
	const n = 40
	w := testWire(t)
	dir := pinDir(t)
	known, other := openTest(t, Options{MaxRules: 256}), openTest(t, Options{MaxRules: 256, PinDir: dir})
	if *known.loader.secret == *other.loader.secret {
		t.Fatal("two rule sets have one secret")
	}
	addrs := collide(known.loader.secret, n, known.g.slots)
	first := from6([16]byte{1}, mustCounter(t, known, "a")) // a second key: the mask is hashed
	mustAdd(t, known, first)
	for i, a := range addrs {
		if err := known.Add(from6(a, first.Counter)); err != nil {
			t.Fatalf("address %d of %d: %v", i+1, n, err)
		}
	}
	treed := 0
	for _, u := range known.tables.treeTuples {
		treed += u.rules
	}
	if treed < n/2 {
		t.Fatalf("%d of %d addresses are in the trees of the rule set whose secret is known: they do not collide, and the test shows nothing", treed, n)
	}
	found := program(t, known, HookIngress, 1)
	for _, a := range addrs {
		if got := runFrame(t, found, udp6(a)); got != xdpDrop {
			t.Errorf("the secret known: a packet from %x passes", a)
		}
	}
	if err := known.verify(); err != nil {
		t.Error(err)
	}

	first.Counter = mustCounter(t, other, "a")
	mustAdd(t, other, first)
	for i, a := range addrs {
		if err := other.Add(from6(a, first.Counter)); err != nil {
			t.Errorf("address %d of %d: %v", i+1, n, err)
		}
	}
	for _, u := range other.tables.treeTuples {
		if u.rules > 0 {
			t.Errorf("%d addresses have no place in the hash table of another secret", u.rules)
		}
	}
	attach(t, other, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	secret, loads := *other.loader.secret, 0
	for round := range 2 {
		p := attachedProgram(t, other)
		for _, a := range addrs {
			if got := runFrame(t, p, udp6(a)); got != xdpDrop {
				t.Errorf("a packet from %x passes", a)
			}
		}
		p.Close()
		if got := readOne(t, other, first.Counter).Packets; got != uint64((round+1)*n) {
			t.Errorf("%d packets counted of %d", got, (round+1)*n)
		}
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		other = openTest(t, Options{MaxRules: 256, PinDir: dir})
		if *other.loader.secret != secret {
			t.Error("another secret after the pins were taken up")
		}
		loads += int(other.Stats().Programs)
		if err := other.verify(); err != nil {
			t.Error(err)
		}
	}
	if loads != 0 {
		t.Errorf("%d programs were loaded to take up the pins", loads)
	}
}

// The test knows the secret, and chooses keys for which the hash table has no place. They can also be removed again.
func TestKeysWithoutASlotAreFoundInTheTrees(t *testing.T) {
	const n = 40
	tab, err := newModel(256)
	if err != nil {
		t.Fatal(err)
	}
	rules := []Rule{from6([16]byte{1}, 0)}
	for _, a := range collide(tab.secret, n, tab.g.slots) {
		rules = append(rules, from6(a, 0))
	}
	for i := range rules { // one by one, as in TestNobodyChoosesAddressesThatCollide
		rules[i].Order = uint32(i)
		if err := tab.come(t.Context(), []swap{{nil, &rules[i]}}); err != nil {
			t.Fatal(err)
		}
	}
	m := Model{t: tab}
	treed := 0
	tab.everyTuple(func(u *tuple) {
		if u.inTree() {
			treed += u.rules
		} else {
			m.hashed = append(m.hashed, u)
		}
	})
	if treed < n/2 || len(m.hashed) != 1 || m.hashed[0].rules+treed != len(rules) {
		t.Fatalf("%d of %d rules are in the trees, %d masks are hashed", treed, len(rules), len(m.hashed))
	}
	var cost float64
	for i := range rules {
		_, order, w := m.Lookup(&rules[i], func() uint64 { return 0 })
		if order != uint32(i) {
			t.Errorf("rule %d: found %d", i, order)
		}
		cost = max(cost, w.NS)
	}
	t.Logf("%d of %d rules are in the trees; a packet of them costs at most %.0f ns by the model", treed, len(rules), cost)
	_, leave, err := tab.pair(rules, nil)
	if err == nil {
		err = tab.leave(leave)
	}
	if err != nil {
		t.Fatal(err)
	}
	if left := tab.forest.set.Len(); left != 0 || tab.count != 0 {
		t.Errorf("%d rules are left, %d of them in the trees", tab.count, left)
	}
}

// With a single multiplier per 64-bit word, keys that differ in the last bytes of two words would share 256 hashes, whatever the
// multipliers.
func TestDifferencesInHighBytesDoNotCollide(t *testing.T) {
	mem := make([]uint64, secretWords)
	for range 20 {
		drawSecret(mem)
		s := secretOf(mem)
		seen := make(map[uint64]bool, 1<<16)
		for i := range uint64(1 << 16) {
			seen[s.hash(3, []uint8{wordAddr, wordAddr6}, []uint64{i >> 8 << 56, i & 0xff << 56})] = true
		}
		if len(seen) < 1<<16-1 {
			t.Errorf("%d hashes of %d keys", len(seen), 1<<16)
		}
	}
}

// Consecutive addresses and ports must fill the table completely, whatever the secret.
func TestConsecutiveKeysFillTheTable(t *testing.T) {
	const n = 1 << 14
	mem := make([]uint64, secretWords)
	for name, key := range map[string]func(i uint64) [2]uint64{
		"addresses":  func(i uint64) [2]uint64 { return [2]uint64{17 << 32, i&0xff<<24&0xff000000 | i>>8<<16} },
		"ports":      func(i uint64) [2]uint64 { return [2]uint64{17<<32 | i<<16, 7} },
		"last bytes": func(i uint64) [2]uint64 { return [2]uint64{i >> 7 << 56, i & 0x7f << 56} },
	} {
		for round := range 50 {
			drawSecret(mem)
			s := secretOf(mem)
			hashes := make([]uint64, n)
			for i := range hashes {
				k := key(uint64(i))
				hashes[i] = s.hash(1, []uint8{wordHot, wordAddr}, k[:])
			}
			tab := fakeSlots(2*n, hashes)
			for i, h := range hashes {
				if !tab.insert(h, slotOf(uint32(i), 0, false, tagOf(h))) {
					t.Fatalf("%s, secret %d: key %d of %d found no slot", name, round, i, n)
				}
			}
		}
	}
}
