package tree

import "math/bits"

// window is a part of a word as a big-endian number.
type window struct{ word, shift, bits int }

// region is the keys that come to a node: those that have value in the known bits.
type region struct{ known, value [Words]uint64 }

// enter makes the bits of a cut's window known: behind it, child goes to a child of the cut, and leave back to the cut. enter
// returns what leave needs.
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

// atLeast returns the smallest number of 16 bits that is not below first and equals v under mask.
func atLeast(first, mask, v uint64) (uint64, bool) {
	diff := (first ^ v) & mask
	if diff == 0 {
		return first, true
	}
	top := bits.Len64(diff) - 1
	if v>>top&1 == 0 {
		// first is above v at this bit: the next bit above that is free and 0 is raised.
		up := ^mask & ^first & 0xffff &^ (1<<(top+1) - 1)
		if up == 0 {
			return 0, false
		}
		top = bits.TrailingZeros64(up)
		return first&^(1<<(top+1)-1) | 1<<top | v&(1<<top-1), true
	}
	return first&^(1<<(top+1)-1) | v&(1<<(top+1)-1), true
}

// covers reports whether every key of the region matches the rule, which is in the region.
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

// values calls f with each value of a window that a key of the region has which matches the rule. If there are more than limit, it
// returns false, and may have called f with some.
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

// inRanges reports whether the ranges of the rule have ports in child v of a window.
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
