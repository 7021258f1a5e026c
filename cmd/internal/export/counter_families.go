package export

import (
	"github.com/flowtally/flowtally/shm"

	dto "github.com/prometheus/client_model/go"
)

// families are the metric families that have one series for each counter. Their series, with the labels, are kept as
// long as the catalogue does not change; a scrape sets only the values.
type families struct {
	epoch uint64 // of the catalogue that series is of
	by    [kinds]family
}

// kind is one of the families.
type kind int

const (
	kindPackets kind = iota
	kindBytes
	kindCompletions
	kindCompletionErrors
	kindDiscontinuities
	kinds
)

// described are name and help of each family.
var described = [kinds]struct{ name, help string }{
	kindPackets:          {"flowtally_packets_total", "Packets that the counter counted."},
	kindBytes:            {"flowtally_bytes_total", "Bytes of these packets; flowtally get shows their basis."},
	kindCompletions:      {"flowtally_completions_total", "Operations of a queue pair that completed, those in error included."},
	kindCompletionErrors: {"flowtally_completion_errors_total", "Operations of a queue pair that completed in error."},
	kindDiscontinuities:  {"flowtally_discontinuities_total", "Points in the total of the counter where packets may be missing or counted twice."},
}

// family is one family. series[i] is of row i of the catalogue, and nil where the family has none.
type family struct {
	series []*dto.Metric
	shown  []*dto.Metric // the present ones, as they are rendered
}

// of returns the families of the two values of a counter.
func of(e shm.Entry) (first, second kind) {
	if e.Kind == shm.KindCompletion {
		return kindCompletions, kindCompletionErrors
	}
	return kindPackets, kindBytes
}

// render returns the families with the values of l. They are valid until the next call.
func (f *families) render(l look, epoch uint64) []*dto.MetricFamily {
	if f.epoch != epoch {
		f.make(l.series)
		f.epoch = epoch
	}
	for k := range f.by {
		f.by[k].shown = f.by[k].shown[:0]
	}
	for i := range l.series {
		r := &l.series[i]
		first, second := of(r.entry)
		if !r.gone {
			f.by[kindDiscontinuities].show(i, float64(r.entry.Continuity.Discontinuities))
		}
		if r.value.SampledAt != 0 && !r.tooLarge {
			f.by[first].show(i, float64(r.value.Packets))
			if !r.unlike {
				f.by[second].show(i, float64(r.value.Bytes))
			}
		}
	}
	var out []*dto.MetricFamily
	for k := range f.by {
		if shown := f.by[k].shown; len(shown) > 0 {
			out = append(out, &dto.MetricFamily{
				Name: &described[k].name, Help: &described[k].help, Type: dto.MetricType_COUNTER.Enum(), Metric: shown,
			})
		}
	}
	return out
}

func (f *family) show(i int, v float64) {
	m := f.series[i]
	*m.Counter.Value = v
	f.shown = append(f.shown, m)
}

// make makes the series of rows.
func (f *families) make(rows []row) {
	for k := range f.by {
		f.by[k] = family{series: make([]*dto.Metric, len(rows))}
	}
	for i := range rows {
		first, second := of(rows[i].entry)
		labels := pairs(rows[i].labels)
		for _, k := range [...]kind{first, second, kindDiscontinuities} {
			f.by[k].series[i] = &dto.Metric{Label: labels, Counter: &dto.Counter{Value: new(float64)}}
		}
	}
}

func pairs(labels []label) []*dto.LabelPair {
	out := make([]*dto.LabelPair, len(labels))
	for i := range labels {
		out[i] = &dto.LabelPair{Name: &labels[i].name, Value: &labels[i].value}
	}
	return out
}
