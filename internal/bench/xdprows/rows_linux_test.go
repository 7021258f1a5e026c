package xdprows

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/rowtest"
	"github.com/flowtally/flowtally/internal/lab/classbench"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// The measured programs count every packet, on our side and on the peer's.
func TestProgramsCountEveryPacket(t *testing.T) {
	need.BPF(t)
	r, err := newRig(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	const n = 200_000
	for _, p := range []string{"flowtally_xdp", "bench_ours_spread"} {
		before, err := r.counted()
		if err != nil {
			t.Fatal(err)
		}
		if err := bench.WithoutSignals(func() error { return r.run(p, n) }); err != nil {
			t.Fatal(err)
		}
		after, err := r.counted()
		if err != nil {
			t.Fatal(err)
		}
		if after-before != n {
			t.Errorf("%s: counted %d packets of %d", p, after-before, n)
		}
	}
	for _, p := range []string{"bench_peer", "bench_peer_spread"} {
		before := r.peerCounted(t)
		if err := bench.WithoutSignals(func() error { return r.run(p, n) }); err != nil {
			t.Fatal(err)
		}
		if got := r.peerCounted(t) - before; got != n {
			t.Errorf("%s: counted %d packets of %d", p, got, n)
		}
	}
}

func (r *rig) peerCounted(t *testing.T) (sum uint64) {
	t.Helper()
	var id uint32
	var v []struct{ Packets, Bytes uint64 }
	it := r.coll.Maps["bench_values"].Iterate()
	for it.Next(&id, &v) {
		for _, c := range v {
			sum += c.Packets
		}
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return sum
}

// TestRowsAreMeasured opens and runs every row until it has a figure, whatever the figure is.
func TestRowsAreMeasured(t *testing.T) {
	need.BPF(t)
	need.CPUs(t, 2)
	rows := slices.DeleteFunc(Rows(), func(r bench.Row) bool {
		long := strings.HasSuffix(r.Name, ".10k") && (strings.HasPrefix(r.Name, "xdp.classbench.") || strings.HasPrefix(r.Name, "xdp.worst.")) || strings.Contains(r.Name, ".16k") || strings.HasPrefix(r.Name, "xdp.set.") || strings.HasSuffix(r.Name, ".3k") // the same code as others
		return r.Peers != "" || long
	})
	rows = rowtest.NotInBenchShort(t, rows)
	report, err := bench.Run(context.Background(), rows, bench.Options{Rounds: 7, Openings: 1, Attempts: 1000, RowTime: 5 * time.Minute, MaxSpread: 10, Anywhere: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Results {
		if r.Ratio == nil {
			t.Errorf("%s: %s", r.Name, r.Reason)
			continue
		}
		t.Logf("%s: %.2f ns against %.2f, ratio %.2f", r.Name, *r.Ours, *r.RefNS, *r.Ratio)
	}
}

// TestSetsOfPrefixesAreMeasured opens the sides of the rows about sets over fewer elements.
func TestSetsOfPrefixesAreMeasured(t *testing.T) {
	need.BPF(t)
	rows := map[string]opener{"change": openMemberChange(2000, 100), "load": openMemberLoad(2000)}
	for name, draw := range memberSets() {
		for _, kind := range kinds {
			rows[name+"."+kind] = openMembers(2000, draw, kind)
		}
	}
	measure(t, rows)
}

// TestChosenSetsAreMeasured opens the sides of the rows about sets that somebody chose, of fewer rules.
func TestChosenSetsAreMeasured(t *testing.T) {
	need.BPF(t)
	measure(t, map[string]opener{
		"few bits": openWorstChosen(func() worstInput { return worstInput{scattered: classbench.FewBits(300, seed)} }),
		"nested":   openWorstChosen(func() worstInput { return worstInput{scattered: classbench.Nested(300)} }),
	})
}

// measure runs the sides of rows once.
func measure(t *testing.T, rows map[string]opener) {
	t.Helper()
	cpus, err := bench.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	for name, open := range rows {
		sides, err := open(t.Context(), bench.Env{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, side := range []bench.Side{sides.Ours, sides.Ref} {
			var ns float64
			pinned := bench.Pinned(cpus[0], func() { ns, err = side(t.Context(), sides.N) }) // it reads the clock of a thread
			if err := errors.Join(pinned, err); err != nil || ns <= 0 {
				t.Errorf("%s: %v ns, %v", name, ns, err)
			}
		}
		if sides.Close != nil {
			if err := sides.Close(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestLoadIsMeasured: each run of the side loads a set and ends it again.
func TestLoadIsMeasured(t *testing.T) {
	need.BPF(t)
	need.Netns(t)
	sides, err := openLoad(200, 24)(t.Context(), bench.Env{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if ns, err := sides.Ours(t.Context(), 1); err != nil || ns <= 0 {
			t.Errorf("%v ns, %v", ns, err)
		}
	}
}
