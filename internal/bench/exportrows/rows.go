package exportrows

import (
	"context"

	"github.com/flowtally/flowtally/internal/bench"
)

const (
	flows      = 4096
	crowdFlows = 8192
	scrapers   = 64
	readers    = 300
)

// Rows returns the rows. bin is the directory of the program flowtally. The rows hold no resource until opened.
func Rows(bin string) []bench.Row {
	return []bench.Row{
		{
			Name:     "export.scrape.4k",
			Ours:     "CPU time of a scrape of 4,096 flows: OpenMetrics, gzip",
			Ref:      "the same text by strconv from ready names and labels, and the same gzip",
			Bound:    2,
			Unit:     "ns per scrape",
			Rounds:   9,
			Openings: 2,
			Open:     func(ctx context.Context, _ bench.Env) (*bench.Sides, error) { return openScrape(ctx, bin) },
		},
		{
			Name:     "export.crowd",
			Ours:     "each of 64 scrapes at a time of 8,192 flows, beside 300 clients that read nothing",
			Ref:      "a scrape by a client that is alone",
			Bound:    0.5,
			Unit:     "ns per scrape",
			Rounds:   7,
			Openings: 1,
			Open:     func(ctx context.Context, _ bench.Env) (*bench.Sides, error) { return openCrowd(ctx, bin) },
		},
	}
}

func openScrape(ctx context.Context, bin string) (*bench.Sides, error) {
	return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
		e, err := start(ctx, open, bin, flows)
		if err != nil {
			return nil, err
		}
		text, err := e.text()
		if err != nil {
			return nil, err
		}
		plain, err := newPlainScrape(text)
		if err != nil {
			return nil, err
		}
		return &bench.Sides{
			Ours:      func(_ context.Context, n int) (float64, error) { return e.cost(n, e.inTurn) },
			Ref:       bench.Timed(bench.ThreadCPU, plain.run),
			N:         4,
			Paced:     true,
			MaxSpread: 0.3,
		}, nil
	})
}

func openCrowd(ctx context.Context, bin string) (*bench.Sides, error) {
	return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
		e, err := start(ctx, open, bin, crowdFlows)
		if err != nil {
			return nil, err
		}
		c := &crowd{address: e.address}
		open.Add(func() error {
			c.leave()
			return nil
		})
		return &bench.Sides{
			Ours: func(context.Context, int) (float64, error) {
				if err := c.come(); err != nil {
					return 0, err
				}
				defer c.leave()
				return e.cost(scrapers, e.atOnce)
			},
			Ref:       func(context.Context, int) (float64, error) { return e.cost(1, e.atOnce) },
			N:         1,
			Paced:     true,
			MaxSpread: 0.5,
		}, nil
	})
}
