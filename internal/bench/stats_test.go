package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestSummaryResistsOutliersAndDrift(t *testing.T) {
	rounds := func(ours ...float64) (s []round) {
		for _, v := range ours {
			s = append(s, round{ours: v, ref: 10})
		}
		return s
	}
	for _, tt := range []struct {
		name string
		in   []round
		want summary
	}{
		{"quiet", rounds(20, 20, 20, 20, 20, 20, 20), summary{ours: 20, ref: 10, ratio: 2, spread: 0, low: 2, high: 2, rounds: 7}},
		{"one outlier moves nothing but the interval", rounds(20, 20, 20, 900, 20, 20, 20),
			summary{ours: 20, ref: 10, ratio: 2, spread: 0, low: 2, high: 90, rounds: 7}},
		{"spread", rounds(16, 18, 19, 20, 21, 22, 24), summary{ours: 20, ref: 10, ratio: 2, spread: 0.15, low: 1.6, high: 2.4, rounds: 7}},
		{"both drift together", []round{{20, 10}, {22, 11}, {24, 12}, {26, 13}, {28, 14}, {30, 15}, {32, 16}},
			summary{ours: 26, ref: 13, ratio: 2, spread: 0, low: 2, high: 2, rounds: 7}},
		{"a clock that falls by half is in no ratio", []round{{20, 10}, {20, 10}, {20, 10}, {40, 10}, {40, 20}, {40, 20}, {40, 20}},
			summary{ours: 40, ref: 10, ratio: 2, spread: 0, low: 2, high: 4, rounds: 7}},
		{"a lost round is an extreme", append(rounds(20, 20, 20, 20, 20, 20, 20, 20), round{20, -1}),
			summary{ours: 20, ref: 10, ratio: 2, spread: 0, low: 2, high: 2, rounds: 9, lost: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := summarise(tt.in)
			near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
			if !near(got.ours, tt.want.ours) || !near(got.ref, tt.want.ref) || !near(got.ratio, tt.want.ratio) ||
				!near(got.spread, tt.want.spread) || !near(got.low, tt.want.low) || !near(got.high, tt.want.high) ||
				got.rounds != tt.want.rounds || got.lost != tt.want.lost {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestNoiseLeavesTheVerdictOpen(t *testing.T) {
	for _, tt := range []struct {
		low, high, bound float64
		want             bool
	}{
		{0.3, 0.45, 0.5, false}, {0.55, 0.7, 0.5, false}, {0.4, 0.6, 0.5, true}, {0.3, 0.5, 0.5, true}, {0.3, 0.31, 0, true},
	} {
		if got := (summary{low: tt.low, high: tt.high}).open(tt.bound); got != tt.want {
			t.Errorf("%v to %v against %v: open %v, want %v", tt.low, tt.high, tt.bound, got, tt.want)
		}
	}
}

func TestRoundsNotAboveTheBaseCountAsLost(t *testing.T) {
	s := summarise([]round{{1, 0}, {1, -2}})
	if s.lost != 2 || !math.IsInf(s.spread, 1) {
		t.Errorf("got %+v, want every round lost and no end of spread", s)
	}
}

// The published table of the sign test (two-sided 95 %).
func TestMedianRankIsThatOfTheSignTest(t *testing.T) {
	for n, want := range map[int]int{1: 0, 5: 0, 6: 1, 7: 1, 8: 1, 9: 2, 11: 2, 12: 3, 15: 4, 21: 6, 25: 8, 50: 18, 100: 40} {
		if got := medianRank(n); got != want {
			t.Errorf("medianRank(%d) = %d, want %d", n, got, want)
		}
	}
}

// The interval must enclose the true median about as often as it says, for a
// distribution as skewed as timings are.
func TestIntervalEnclosesTheMedian(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const trials, n = 4000, 21
	in := 0
	for range trials {
		v := make([]float64, n)
		for i := range v {
			v[i] = math.Exp(3 * rng.NormFloat64()) // median 1
		}
		slices.Sort(v)
		k := medianRank(n)
		if v[k-1] <= 1 && 1 <= v[n-k] {
			in++
		}
	}
	if share := float64(in) / trials; share < 0.95 || share > 0.99 {
		t.Errorf("enclosed in %.3f of trials, want 0.95 to 0.99", share)
	}
}

func TestQuantileInterpolatesAndLeavesItsArgument(t *testing.T) {
	v := []float64{4, 1, 3, 2}
	for q, want := range map[float64]float64{0: 1, 0.5: 2.5, 0.25: 1.75, 1: 4} {
		if got := quantile(v, q); got != want {
			t.Errorf("quantile(%v) = %v, want %v", q, got, want)
		}
	}
	if v[0] != 4 {
		t.Error("quantile sorted its argument in place")
	}
}
