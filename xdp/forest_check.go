package xdp

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/flowtally/flowtally/xdp/tree"
)

// checked is the number of rules from which a check of the trees makes packets. The linear matcher compares each
// packet with every rule: with 65,536 rules a check takes about 50 ms.
const checked = 64

// check compares the trees with a linear matcher over packets that are made from some of the rules, before programs
// that walk them are attached. heads are all rules of the trees.
func (f *forest) check(heads []Rule) error {
	for i := range min(checked, len(heads)) {
		key := packetOf(&heads[i*len(heads)/min(checked, len(heads))], rand.Uint64)
		const both = FlagIPv4 | FlagIPv6
		if key.Out.Flags&both == both {
			continue // no frame has both
		}
		want := noRank
		for j := range heads {
			if heads[j].rank() < want && heads[j].matches(key.words()) {
				want = heads[j].rank()
			}
		}
		got := noRank
		k := tree.Key(*key.words())
		if e := f.set.Lookup(&k, f.entryMatches); e != 0 {
			got = f.entries.rank(unitOfTree(e))
		}
		if got != want {
			return fmt.Errorf("checking the trees of %d rules: %w: of a packet of %+v they find rank %#x, not %#x",
				len(heads), errTrees, key, got, want)
		}
	}
	return nil
}

// packetOf is the key of a packet that a rule matches: its other bits are random, apart from the flags.
func packetOf(r *Rule, random func() uint64) (key Key) {
	k, m := r.Key.words(), r.Mask.words()
	w := key.words()
	for i := range w {
		w[i] = k[i] | random()&^m[i]
	}
	key.Out.Flags, key.In.Flags = r.Key.Out.Flags, r.Key.In.Flags
	for level, p := range r.Ports {
		h := []*Headers{&key.Out, &key.In}[level]
		for i, at := range []Range{p.Src, p.Dst} {
			if at != (Range{}) {
				binary.BigEndian.PutUint16(h.L4[2*i:], at.First+uint16(random()%(uint64(at.Last-at.First)+1)))
			}
		}
	}
	return key
}
