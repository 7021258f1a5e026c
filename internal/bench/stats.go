package bench

import (
	"fmt"
	"math"
	"slices"
)

// round holds the cost of each side in one round, above the base.
type round struct{ ours, ref float64 }

// lost says that a side was not above the base.
func (r round) lost() bool { return r.ours <= 0 || r.ref <= 0 }

// ratio is that of the two sides. A lost round has an extreme one, which the median and its interval bear.
func (r round) ratio() float64 {
	switch {
	case r.ref <= 0:
		return math.Inf(1)
	case r.ours <= 0:
		return 0
	default:
		return r.ours / r.ref
	}
}

// summary condenses the rounds of an attempt.
type summary struct {
	ours, ref float64 // medians
	ratio     float64 // median of the rounds' own ratios
	spread    float64 // interquartile range of the rounds' own ratios, over their median
	low, high float64 // at least 95 % confidence interval of the median of the rounds' ratios
	rounds    int
	lost      int // rounds in which a side was not above the base
}

// summarise condenses rounds. The ratio, its spread and its interval come from the ratio of each round, whose sides saw
// the same machine: a clock rate that drifts, or falls for a while, changes none of them.
func summarise(rounds []round) summary {
	s := summary{rounds: len(rounds)}
	var ours, ref, ratios []float64
	for _, r := range rounds {
		ours = append(ours, r.ours)
		ref = append(ref, r.ref)
		ratios = append(ratios, r.ratio())
		if r.lost() {
			s.lost++
		}
	}
	slices.Sort(ratios)

	s.ours = quantile(ours, 0.5)
	s.ref = quantile(ref, 0.5)
	s.ratio = quantile(ratios, 0.5)
	s.spread, s.low, s.high = math.Inf(1), math.Inf(-1), math.Inf(1) // until more is known
	if s.lost == len(rounds) {
		return s
	}

	s.spread = (quantile(ratios, 0.75) - quantile(ratios, 0.25)) / s.ratio
	if k := medianRank(len(ratios)); k > 0 { // else too few rounds for any 95 % interval
		s.low = ratios[k-1]
		s.high = ratios[len(ratios)-k]
	}
	return s
}

// width is the width of the interval over the ratio. It is infinite without an interval.
func (s summary) width() float64 {
	if s.rounds == 0 || s.ratio <= 0 || math.IsInf(s.ratio, 0) {
		return math.Inf(1)
	}
	return (s.high - s.low) / s.ratio
}

// better returns the summary with the narrower interval. Without intervals, more rounds win.
func better(a, b summary) summary {
	if wa, wb := a.width(), b.width(); wa < wb || wa == wb && a.rounds >= b.rounds {
		return a
	}
	return b
}

// noise returns why the rounds mean nothing, or nil. widest is the spread up to which they are quiet.
func (s summary) noise(bound, widest float64) error {
	switch {
	case s.lost*20 > s.rounds:
		return fmt.Errorf("%w: in %d of %d rounds a side cost no more than the base", errNoise, s.lost, s.rounds)
	case s.spread > widest && s.open(bound):
		return fmt.Errorf("%w: spread %.2f is above %.2f", errNoise, s.spread, widest)
	default:
		return nil
	}
}

// open says that noise leaves the verdict open: the bound lies within the interval, or the row has none.
func (s summary) open(bound float64) bool { return bound == 0 || s.low <= bound && bound <= s.high }

// quantile returns the quantile q of v, by linear interpolation between the neighbours.
func quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	at := q * float64(len(s)-1)
	i := int(at)
	if at == float64(i) { // exactly, also where the next one is infinite
		return s[i]
	}
	return s[i] + (at-float64(i))*(s[i+1]-s[i])
}

// medianRank returns the largest k for which the k-th lowest and the k-th
// highest of n values enclose the median with at least 95 % confidence,
// whatever the distribution (the sign test: fewer than k of n fair coins), or
// 0 when n is too small.
func medianRank(n int) int {
	term := math.Pow(0.5, float64(n)) // P(exactly 0 of n)
	sum, k := 0.0, 0
	for i := 0; i < n/2; i++ {
		sum += term // P(at most i of n)
		if sum > 0.025 {
			break
		}
		k = i + 1
		term *= float64(n-i) / float64(i+1)
	}
	return k
}
