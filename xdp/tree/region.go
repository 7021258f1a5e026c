package tree

import "math/bits"

// window selects adjacent bits of a word, as a big-endian number.
type window struct{ word, shift, bits int }

// region is the set of keys that reach a node: those whose known bits have value.
type region struct{ known, value [Words]uint64 }

// enter narrows the region from a cut to its children. Afterwards child selects one of them. leave goes back to the cut, and needs
// the result of enter.
func (g *region) enter(w window) (outer [2]uint64) {
	outer = [2]uint64{g.known[w.word], g.value[w.word]}
	g.known[w.word] |= (1<<w.bits - 1) << w.shift
	return outer
}

func (g *region) child(w window, v uint64) {
	g.value[w.word] = g.value[w.word]&^((1<<w.bits-1)<<w.shift) | v<<w.shift
}

func (g *region) leave(w window, outer [2]uint64) {
	g.known[w.word], g.value[w.word] = outer[0], outer[1]
}

// in reports whether some key of the region matches the rule.
func (r *rule) in(g *region) bool {
	for i := range r.fields {
		f := &r.fields[i]
		if (g.value[f.word]^f.key)&f.mask&g.known[f.word] != 0 {
			return false
		}
	}
	for i := range r.ranges {
		if !r.ranges[i].in(r, g.known[r.ranges[i].word], g.value[r.ranges[i].word]) {
			return false
		}
	}
	return true
}

// in reports whether a port of the range has the known bits of value, and the bits that r demands.
func (p *portRange) in(r *rule, known, value uint64) bool {
	key, mask := r.at(p.word)
	m := (known | mask) >> p.shift & 0xffff
	v := (value&known | key) >> p.shift & m
	x, ok := atLeast(p.first, m, v)
	return ok && x <= p.last
}

// atLeast returns the smallest 16-bit number from first on that equals v under mask. ok is false if there is none.
func atLeast(first, mask, v uint64) (least uint64, ok bool) {
	diff := (first ^ v) & mask
	if diff == 0 {
		return first, true
	}
	top := bits.Len64(diff) - 1
	if v>>top&1 == 0 {
		// At this bit first is greater than v. Raise the next higher bit that is 0 and not in the mask.
		up := ^mask & ^first & 0xffff &^ (1<<(top+1) - 1)
		if up == 0 {
			return 0, false
		}
		top = bits.TrailingZeros64(up)
		return first&^(1<<(top+1)-1) | 1<<top | v&(1<<top-1), true
	}
	return first&^(1<<(top+1)-1) | v&(1<<(top+1)-1), true
}

// covers reports whether every key of the region matches the rule. The rule must be in the region.
func (r *rule) covers(g *region) bool {
	for i := range r.fields {
		if f := &r.fields[i]; f.mask&^g.known[f.word] != 0 {
			return false
		}
	}
	for _, p := range r.ranges {
		m := g.known[p.word] >> p.shift & 0xffff
		v := g.value[p.word] >> p.shift & m
		if v < p.first || v|0xffff&^m > p.last {
			return false
		}
	}
	return true
}

// values enumerates the children of a cut in which the rule must be: it calls f with every value that the window can have in keys of
// the region that match the rule. If there are more than limit, it returns false, possibly after some calls of f.
func (g *region) values(r *rule, w window, limit int, f func(v uint32)) bool {
	key, mask := r.at(w.word)
	known := g.known[w.word]
	key |= g.value[w.word] & known &^ mask
	mask |= known
	all := uint64(1)<<w.bits - 1
	free := all &^ (mask >> w.shift)
	v := key >> w.shift & all
	ranged := false
	for i := range r.ranges {
		p := &r.ranges[i]
		ranged = ranged || p.word == w.word && w.shift < p.shift+16 && w.shift+w.bits > p.shift
	}
	if !ranged && 1<<bits.OnesCount64(free) > limit {
		return false
	}
	n := 0
	for s := uint64(0); ; s = (s - free) & free {
		if !ranged || g.inRanges(r, w, v|s) {
			if n++; n > limit {
				return false
			}
			f(uint32(v | s))
		}
		if s == free {
			return true
		}
	}
}

// inRanges reports whether child v of a window has keys with ports in the ranges of the rule.
func (g *region) inRanges(r *rule, w window, v uint64) bool {
	known := g.known[w.word] | (1<<w.bits-1)<<w.shift
	value := g.value[w.word]&^((1<<w.bits-1)<<w.shift) | v<<w.shift
	for i := range r.ranges {
		if p := &r.ranges[i]; p.word == w.word && !p.in(r, known, value) {
			return false
		}
	}
	return true
}
