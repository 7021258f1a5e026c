package readrows

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/flowtally/flowtally/internal/bench"
)

// openPrometheus compares the mirror with a registry of client_golang. read sums its counters. The registry starts threads of
// its own to gather, so both sides are timed by the CPU time of the process.
func openPrometheus(read func(*prometheus.Registry) (uint64, error)) opener {
	return func(context.Context, bench.Env) (*bench.Sides, error) {
		return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
			ours, err := openMirror(open, bench.ProcessCPU)
			if err != nil {
				return nil, err
			}
			registry := prometheus.NewRegistry()
			vec := prometheus.NewCounterVec(prometheus.CounterOpts{
				Name: "flow_packets_total",
				Help: "Packets of the flow.",
			}, []string{"flow"})
			if err := registry.Register(vec); err != nil {
				return nil, fmt.Errorf("registering the counters: %w", err)
			}
			for i := range counters {
				vec.WithLabelValues(nameOf(i)).Add(float64(packetsOf(i)))
			}
			theirs := reading(bench.ProcessCPU, func() (uint64, error) { return read(registry) })
			return &bench.Sides{
				Ours: ours,
				Ref: func(ctx context.Context, n int) (float64, error) {
					runtime.GC() // outside the clock, so that a read finds memory to use again, and faults in no new pages
					return theirs(ctx, n)
				},
				MaxSpread: 0.5, // the ratio is far from the bound
			}, nil
		})
	}
}

// gather reads the counters as values in Go.
func gather(registry *prometheus.Registry) (uint64, error) {
	families, err := registry.Gather()
	if err != nil {
		return 0, fmt.Errorf("gathering: %w", err)
	}
	return packetsIn(families), nil
}

// scrape has the handler write the counters as text, and parses it as somebody who scrapes does.
func scrape(registry *prometheus.Registry) (uint64, error) {
	response := httptest.NewRecorder()
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(response, request)
	if response.Code != http.StatusOK {
		return 0, fmt.Errorf("scraping: status %d", response.Code)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return 0, fmt.Errorf("parsing a scrape: %w", err)
	}
	var sum uint64
	for _, f := range families {
		sum += packetsIn([]*dto.MetricFamily{f})
	}
	return sum, nil
}

func packetsIn(families []*dto.MetricFamily) (sum uint64) {
	for _, f := range families {
		for _, m := range f.Metric {
			sum += uint64(m.GetCounter().GetValue())
		}
	}
	return sum
}
