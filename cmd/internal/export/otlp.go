package export

import (
	"cmp"
	"math"
	"os"
	"slices"
	"time"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"

	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/shm"
)

// mostPoints is the most data points in one request. Collectors refuse messages over 4 MiB by default. A point takes
// about 200 bytes, more with long labels.
const mostPoints = 4096

// sums has the name and the unit of each kind's metric. OTLP takes units from UCUM.
var sums = [kinds]struct{ name, unit string }{
	kindPackets:          {"flowtally.packets", "{packet}"},
	kindBytes:            {"flowtally.bytes", "By"},
	kindCompletions:      {"flowtally.completions", "{operation}"},
	kindCompletionErrors: {"flowtally.completion_errors", "{operation}"},
	kindDiscontinuities:  {"flowtally.discontinuities", "{discontinuity}"},
}

// start is the time at which a total began, and the total at the last push.
type start struct {
	at uint64 // in ns since 1970
	counted
}

// startOf returns the beginning of a counter's total. Totals survive restarts of the writer and a new mirror file, so
// their beginning does too. A total lower than the last one has begun again. zero is the wall-clock time at 0 of
// CLOCK_MONOTONIC.
func (p *Pusher) startOf(r *row, of *shm.Reader, zero time.Time) start {
	s, known := p.startByName[r.entry.Name]
	if !known || !s.goesOn(r, of) {
		// Truncate to seconds: the two clocks drift apart, and another exporter must compute the same start.
		added := zero.Add(time.Duration(r.entry.AddedAt)).Truncate(time.Second)
		s.at = uint64(max(0, added.UnixNano()))
		if known { // it began again, after the last sample of the old total
			s.at = max(s.at, uint64(zero.Add(time.Duration(s.value.SampledAt)).UnixNano()))
		}
	}
	s.value = r.value
	s.handle = r.entry.Handle
	s.file = of
	return s
}

// requests returns the current counters, as requests of at most mostPoints points each. It returns none if no counter
// has a value to push.
func (p *Pusher) requests() ([]*collector.ExportMetricsServiceRequest, error) {
	e := p.of
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.look()
	if l.err != nil {
		return nil, l.err
	}

	points := p.points(l.series)
	var out []*collector.ExportMetricsServiceRequest
	about := p.resource()
	for k := range points {
		for part := range slices.Chunk(points[k], mostPoints) {
			out = append(out, p.request(about, kind(k), part))
		}
	}
	return out, nil
}

// points returns the points of each kind. It also updates startByName, and drops the starts of removed counters there.
func (p *Pusher) points(series []row) (points [kinds][]*metrics.NumberDataPoint) {
	zero := view.MonotonicZero()
	starts := make(map[string]start, len(series))
	for i := range series {
		r := &series[i]
		if r.gone || r.value.SampledAt == 0 {
			continue
		}
		s := p.startOf(r, p.of.catalogue.file, zero)
		starts[r.entry.Name] = s

		at := uint64(zero.Add(time.Duration(r.value.SampledAt)).UnixNano())
		attributes := attributesOf(r.labels)
		add := func(k kind, total uint64) {
			points[k] = append(points[k], pointOf(attributes, min(s.at, at), at, total))
		}
		first, second := kindsOf(r.entry)
		if !r.tooLarge {
			add(first, r.value.Packets)
			if !r.unlike {
				add(second, r.value.Bytes)
			}
		}
		add(kindDiscontinuities, r.entry.Continuity.Discontinuities)
	}
	p.startByName = starts
	return points
}

func (p *Pusher) request(about *resource.Resource, k kind, points []*metrics.NumberDataPoint) *collector.ExportMetricsServiceRequest {
	metric := &metrics.Metric{
		Name:        sums[k].name,
		Unit:        sums[k].unit,
		Description: described[k].help,
		Data: &metrics.Metric_Sum{Sum: &metrics.Sum{
			DataPoints:             points,
			IsMonotonic:            true,
			AggregationTemporality: metrics.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE,
		}},
	}
	return &collector.ExportMetricsServiceRequest{ResourceMetrics: []*metrics.ResourceMetrics{{
		Resource: about,
		ScopeMetrics: []*metrics.ScopeMetrics{{
			Scope:   &common.InstrumentationScope{Name: "github.com/flowtally/flowtally", Version: p.of.options.Version},
			Metrics: []*metrics.Metric{metric},
		}},
	}}}
}

// resource names the host and the instance.
func (p *Pusher) resource() *resource.Resource {
	attributes := []*common.KeyValue{
		keyValue("service.name", "flowtally"),
		keyValue("service.version", text(p.of.options.Version)),
	}
	instance := cmp.Or(p.of.options.Path, p.of.options.Instance, "default")
	if host, err := os.Hostname(); err == nil {
		attributes = append(attributes, keyValue("host.name", text(host)))
		instance = host + "/" + instance
	}
	return &resource.Resource{Attributes: append(attributes, keyValue("service.instance.id", text(instance)))}
}

// pointOf returns a data point. OTLP has no unsigned integers, so a total above the largest signed one becomes a double.
func pointOf(attributes []*common.KeyValue, from, at, v uint64) *metrics.NumberDataPoint {
	p := &metrics.NumberDataPoint{Attributes: attributes, StartTimeUnixNano: from, TimeUnixNano: at}
	if v <= math.MaxInt64 {
		p.Value = &metrics.NumberDataPoint_AsInt{AsInt: int64(v)}
	} else {
		p.Value = &metrics.NumberDataPoint_AsDouble{AsDouble: float64(v)}
	}
	return p
}

func attributesOf(labels []label) []*common.KeyValue {
	out := make([]*common.KeyValue, len(labels))
	for i, l := range labels {
		out[i] = keyValue(l.name, l.value)
	}
	return out
}

func keyValue(key, value string) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: value}}}
}
