// Package exportrows has the rows of the bench about flowtally export.
//
// export.scrape.4k is one scrape of 4,096 flows as Prometheus makes it: OpenMetrics, compressed by gzip. It is measured
// as CPU time of the whole process, garbage collection included, against the most that a scrape may take.
//
// export.crowd is 64 scrapes of 8,192 flows at a time, beside 300 clients that have asked and read nothing, over TCP. It
// is the CPU time of the process, clients included, for each of the 64, against a scrape by a client that is alone.
package exportrows

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/flowtally/flowtally/cmd/internal/export"
	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/shm"
)

const (
	flows      = 4096
	crowdFlows = 8192
	scrapers   = 64
	readers    = 300
	// most is the CPU time that a scrape may take, in ns.
	most = 20e6
)

// Rows returns the rows. They hold no resource until opened.
func Rows() []bench.Row {
	return []bench.Row{
		{Name: "export.scrape.4k", Ref: "20 ms of CPU, the most that a scrape may take", Bound: 1, Unit: "ns per scrape", Rounds: 9, Openings: 2, Open: open},
		{Name: "export.crowd", Ref: "a scrape by a client that is alone", Bound: 0.5, Unit: "ns per scrape", Rounds: 7, Openings: 1, Open: openCrowd},
	}
}

func open(context.Context, bench.Env) (*bench.Sides, error) {
	return bench.Acquire(func(c *bench.Closers) (*bench.Sides, error) {
		e, err := exporter(c, flows)
		if err != nil {
			return nil, err
		}
		handler := e.Handler()
		return &bench.Sides{
			Ours: func(_ context.Context, n int) (float64, error) {
				start, err := bench.ProcessCPU()
				if err != nil {
					return 0, err
				}
				for range n {
					if err := scrape(handler); err != nil {
						return 0, err
					}
				}
				end, err := bench.ProcessCPU()
				return float64(end-start) / float64(n), err
			},
			Ref: func(context.Context, int) (float64, error) { return most, nil },
			N:   4, MaxSpread: 0.3,
		}, nil
	})
}

// exporter makes a mirror with flows, and its exporter.
func exporter(c *bench.Closers, flows int) (*export.Exporter, error) {
	dir, err := os.MkdirTemp("/dev/shm", fmt.Sprintf("flowtally-bench-%d-", os.Getpid()))
	if err != nil {
		return nil, fmt.Errorf("making a directory for a mirror: %w", err)
	}
	c.Add(func() error { return os.RemoveAll(dir) })
	path := filepath.Join(dir, "export.mirror")
	w, err := shm.Create(shm.Options{Path: path, History: -1})
	if err != nil {
		return nil, err
	}
	c.Add(w.Close)
	if err := fill(w, flows); err != nil {
		return nil, err
	}
	e := export.New(export.Options{Path: path, LabelKeys: []string{"team"}, Logger: slog.New(slog.DiscardHandler)})
	c.Add(e.Close)
	return e, nil
}

// fill adds flows with labels and values of many digits.
func fill(w *shm.Writer, flows int) error {
	now := shm.Now()
	var b shm.Block
	for i := range flows {
		_, err := w.Add(shm.Entry{
			Name: fmt.Sprintf("tenant-%04d-https", i), Kind: "flow", Text: "ingress on eth0: ipv4 tcp dport 443", Source: "xdp:eth0/native",
			ByteBasis: "l2", Valid: true, Labels: map[string]string{"team": fmt.Sprintf("team-%d", i%16)},
		})
		if err != nil {
			return err
		}
	}
	w.BeginCycle()
	for i := range flows / shm.BlockLen {
		for j := range b {
			n := uint64(i*shm.BlockLen+j) * 7919 * 104729
			b[j] = shm.Value{Packets: n, Bytes: n * 743, SampledAt: now}
		}
		w.PublishBlock(i, &b)
	}
	w.EndCycle(now)
	return nil
}

// As Prometheus sends them.
const (
	accept   = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
	encoding = "gzip"
)

// scrape makes one request as Prometheus does.
func scrape(h http.Handler) error {
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", accept)
	r.Header.Set("Accept-Encoding", encoding)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		return fmt.Errorf("scraping: status %d: %s", w.Code, w.Body)
	}
	return nil
}
