package tree

import (
	"math"
	"math/bits"
)

// Weights in nanoseconds, by which the builder compares shapes of a tree.
const (
	nsCut     = 5.0
	nsEntry   = 9.0
	nsList    = 5.0
	nsGroup   = 20.0 // walking another group
	nsEjected = 4.0  // deciding whether to walk another group
	nsWord    = 0.3  // per rule, for each word of a cut's nodes

	// A cut is expected to divide the rules of a node in a group by two to this power. Cuts that divide by two are many levels.
	bitsPerCut = 1.5
)

// Nanoseconds per packet among 1,000 rules, from a profile. Walk.NS uses them. The builder does not: with these figures, it would make
// lists that are too long for 10,000 rules.
const (
	nsWalk = 12.0 // walking a tree
	nsNext = 3.0  // each further entry of a list
)

// wildLoss weighs the copies that a bit causes against the rules that it separates. A cut copies each rule without the bit in its
// mask.
const wildLoss = 0.5

const (
	sampled   = 128 // rules by which choose judges a window
	perWidth  = 3   // windows of each width that choose judges for a single tree
	perGroup  = 2   // the same for a group
	listsUpTo = 16  // the longest list that a group prefers to a cut
)

// below estimates the walk below a node with m rules, in nanoseconds.
func below(m float64) float64 {
	if m <= 1 {
		return nsEntry * m
	}
	return nsEntry + nsCut*(1+log2(m)/bitsPerCut)
}

// log2 approximates the binary logarithm of a positive number, by straight lines between powers of two.
func log2(m float64) float64 {
	b := math.Float64bits(m)
	return float64(int(b>>52)-1023) + float64(b&(1<<52-1))/(1<<52)
}

// curved approximates the binary logarithm by parabolas between powers of two. The error is at most 0.01.
func curved(m float64) float64 {
	f := float64(math.Float64bits(m)&(1<<52-1)) / (1 << 52)
	return log2(m) + 0.345*f*(1-f)
}

// choose returns the best window for a cut, and its cost. ok is false if no cut makes progress: each leaves all rules in some child.
func (b *builder) choose(rules []int32) (best window, cost float64, ok bool) {
	n := len(rules)
	if b.choiceByHash != nil {
		hash := b.hash(rules)
		if c, ok := b.choiceByHash[hash]; ok {
			return c.window, c.cost, c.ok
		}
		defer func() { b.choiceByHash[hash] = choice{best, cost, ok} }()
	}

	sample := rules
	if n > sampled {
		sample = b.sample[:0]
		for i := range sampled {
			sample = append(sample, rules[i*n/sampled])
		}
	}

	widest := min(MaxBits, max(1, bits.Len(uint(float64(n)*b.words))-1))
	b.countBits(sample)
	cost = math.Inf(1)
	for width := widest; width > 0; {
		for _, w := range b.promising(width) {
			if c, progress := b.judge(w, sample, n); progress && c < cost {
				best, cost, ok = w, c, true
			}
			if b.stopped(len(sample) + len(b.touched)) {
				return window{}, 0, false
			}
		}
		if width > 4 {
			width--
		}
		width--
	}
	return best, cost, ok
}

// choice is a result of choose.
type choice struct {
	window window
	cost   float64
	ok     bool
}

// hash identifies a node for choiceByHash: by its rules, and the known bits of its region.
func (b *builder) hash(rules []int32) uint64 {
	h := uint64(fnvOffset)
	for _, known := range b.region.known {
		h = mix(h, known)
	}
	for _, i := range rules {
		h = mix(h, uint64(i))
	}
	return h
}

// bitCount has statistics of a sample of rules, for each bit of a word.
type bitCount struct {
	word   int
	masked [64]uint16  // rules with the bit in their masks
	set    [64]uint16  // rules that require the bit to be 1
	score  [65]float64 // prefix sums of the scores of the bits
}

// countBits fills b.counts. The score of a bit is the information that it gives about rules, minus the cost of copying the rules
// without it in their masks.
func (b *builder) countBits(sample []int32) {
	b.counts = b.counts[:0]
	var at [Words]int8
	for _, i := range sample {
		r := b.rules[i]
		for j := range r.fields {
			f := &r.fields[j]
			m := f.mask &^ b.region.known[f.word]
			if m == 0 {
				continue
			}
			if at[f.word] == 0 {
				b.counts = append(b.counts, bitCount{word: f.word})
				at[f.word] = int8(len(b.counts))
			}
			c := &b.counts[at[f.word]-1]
			for ; m != 0; m &= m - 1 {
				bit := bits.TrailingZeros64(m)
				c.masked[bit]++
				c.set[bit] += uint16(f.key >> bit & 1)
			}
		}
		for j := range r.ranges {
			if w := r.ranges[j].word; at[w] == 0 {
				b.counts = append(b.counts, bitCount{word: w})
				at[w] = int8(len(b.counts))
			}
		}
	}

	n := float64(len(sample))
	for i := range b.counts {
		c := &b.counts[i]
		for bit := range 64 {
			score := -wildLoss
			if masked := float64(c.masked[bit]); masked > 0 {
				p := float64(c.set[bit]) / masked
				wild := 1 - masked/n
				score = -curved(wild+(1-wild)*(p*p+(1-p)*(1-p))) - wildLoss*curved(1+wild)
			}
			c.score[bit+1] = c.score[bit] + score
		}
	}
}

// promising returns the windows of a width with the highest scores, best first.
func (b *builder) promising(width int) []window {
	var found [perWidth]window
	var score [perWidth]float64
	n, most := 0, perGroup
	if b.choiceByHash != nil {
		most = perWidth
	}
	for i := range b.counts {
		c := &b.counts[i]
		for shift := 0; shift+width <= 64; shift++ {
			s := c.score[shift+width] - c.score[shift]
			at := n
			for at > 0 && score[at-1] < s {
				at--
			}
			if at == most {
				continue
			}
			n = min(n+1, most)
			copy(found[at+1:n], found[at:n])
			copy(score[at+1:n], score[at:n])
			found[at], score[at] = window{c.word, shift, width}, s
		}
	}
	b.windows = append(b.windows[:0], found[:n]...)
	return b.windows
}

// judge estimates the walk from a cut by this window on, in nanoseconds. sample represents n rules. progress is false if some child
// would have all rules.
func (b *builder) judge(w window, sample []int32, n int) (cost float64, progress bool) {
	size := 1 << w.bits
	estimate := below
	if b.choiceByHash != nil {
		estimate = b.levelled
	}

	// hist counts the rules of each child. touched lists the children of all rules. spans holds the end of each rule's part.
	b.touched = b.touched[:0]
	b.spans = b.spans[:0]
	ejected := 0
	for _, i := range sample {
		start := len(b.touched)
		if !b.region.values(b.rules[i], w, b.room(b.rules[i]), func(v uint32) { b.touched = append(b.touched, v) }) {
			b.touched = b.touched[:start]
			ejected++
		}
		for _, v := range b.touched[start:] {
			b.hist[v]++
		}
		b.spans = append(b.spans, int32(len(b.touched)))
	}

	// Assume that a packet of a rule reaches any child of that rule with equal probability.
	scale := float64(n) / float64(len(sample))
	most := 0.0 // rules in the fullest child
	mass := 0.0 // sum of shares of the rules
	start := int32(0)
	for i, end := range b.spans {
		if end > start {
			sum := 0.0
			for _, v := range b.touched[start:end] {
				m := 1 + float64(b.hist[v]-1)*scale
				most = max(most, m)
				sum += estimate(m)
			}
			share := b.rules[sample[i]].share
			cost += share * sum / float64(end-start)
			mass += share
		}
		start = end
	}

	copies := float64(len(b.touched))
	b.work -= len(b.touched) / 32
	for _, v := range b.touched {
		b.hist[v] = 0
	}
	if mass == 0 {
		return 0, false
	}

	memory := b.nsWord * (float64(size) + copies*scale)
	if b.choiceByHash == nil {
		memory /= float64(n)
	} else {
		memory /= mass * scale
	}
	cost = nsCut + cost/mass + memory
	if ejected > 0 {
		share := float64(ejected) / float64(len(sample))
		cost += nsEjected + nsGroup*share
	}
	return cost, most < float64(n)
}
