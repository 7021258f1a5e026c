package readrows

import (
	"context"

	"github.com/flowtally/flowtally/internal/bench"
)

// counters that one operation reads.
const counters = 4096

type opener = func(context.Context, bench.Env) (*bench.Sides, error)

// Rows returns the rows. bin is the directory of the program flowtally-bench-govpp. The rows hold no resource until opened.
func Rows(bin string) []bench.Row {
	row := func(name, ref string, bound float64, open opener) bench.Row {
		return bench.Row{
			Name:  "read.vs." + name + ".4k",
			Ours:  "4,096 counters loaded from the mirror",
			Ref:   ref,
			Bound: bound,
			Unit:  "ns per 4,096 counters",
			Full:  true,
			Open:  open,
		}
	}
	vpp := row("govpp", "govpp: VPP's statistics segment", 1, openVPP(bin))
	vpp.Peers = "govpp"
	return []bench.Row{
		row("prometheus", "client_golang: Gather", 1, openPrometheus(gather)),
		row("prometheus.scrape", "client_golang: its text, made and parsed", 1, openPrometheus(scrape)),
		row("aeron", "Aeron's counters file: the counters in use", 1, openAeron(inUse)),
		row("aeron.ids", "Aeron's counters file: a bare load of each value", 2.2, openAeron(byID)),
		vpp,
	}
}

// reading returns a side that reads all counters n times. read returns the sum of their packets.
func reading(clock bench.Clock, read func() (packets uint64, err error)) bench.Side {
	return func(ctx context.Context, n int) (float64, error) {
		var failed error
		ns, err := bench.Timed(clock, func(n int) {
			for range n {
				sum, err := read()
				if err == nil && sum != total() {
					err = &sumError{sum}
				}
				if err != nil {
					failed = err
					return
				}
			}
		})(ctx, n)
		if failed != nil {
			return 0, failed
		}
		return ns, err
	}
}
