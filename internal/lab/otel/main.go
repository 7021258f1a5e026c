// Command otel is a collector of OpenTelemetry for tests: the collector's own OTLP receiver, which writes each data point
// of a sum that it receives to standard output, as a line of JSON. It is a module of its own, so that the collector is no
// dependency of flowtally.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

// point is one data point.
type point struct {
	Metric     string         `json:"metric"`
	Unit       string         `json:"unit"`
	Monotonic  bool           `json:"monotonic"`
	Cumulative bool           `json:"cumulative"`
	Start      int64          `json:"start_ns"`
	Time       int64          `json:"time_ns"`
	Value      int64          `json:"value"`
	Attributes map[string]any `json:"attributes"`
	Resource   map[string]any `json:"resource"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "otel:", err)
		os.Exit(1)
	}
}

// run receives gRPC and HTTP at two addresses until ctx ends.
func run(ctx context.Context, grpc, http string) error {
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	sink, err := consumer.NewMetrics(func(_ context.Context, m pmetric.Metrics) error {
		mu.Lock()
		defer mu.Unlock()
		return write(out, m)
	})
	if err != nil {
		return err
	}
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig().(*otlpreceiver.Config)
	config.Protocols.GRPC.GetOrInsertDefault().NetAddr.Endpoint = grpc
	config.Protocols.HTTP.GetOrInsertDefault().ServerConfig.NetAddr.Endpoint = http
	receiver, err := factory.CreateMetrics(ctx, receivertest.NewNopSettings(factory.Type()), config, sink)
	if err != nil {
		return err
	}
	if err := receiver.Start(ctx, componenttest.NewNopHost()); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "receiving")
	<-ctx.Done()
	return receiver.Shutdown(context.WithoutCancel(ctx))
}

func write(out *json.Encoder, m pmetric.Metrics) error {
	for _, r := range m.ResourceMetrics().All() {
		for _, s := range r.ScopeMetrics().All() {
			for _, metric := range s.Metrics().All() {
				sum := metric.Sum()
				for _, p := range sum.DataPoints().All() {
					err := out.Encode(point{
						metric.Name(), metric.Unit(), sum.IsMonotonic(), sum.AggregationTemporality() == pmetric.AggregationTemporalityCumulative,
						int64(p.StartTimestamp()), int64(p.Timestamp()), p.IntValue(), p.Attributes().AsRaw(), r.Resource().Attributes().AsRaw(),
					})
					if err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}
