package export

import (
	"github.com/prometheus/common/expfmt"

	"github.com/flowtally/flowtally/shm"

	dto "github.com/prometheus/client_model/go"
)

// families are the metric families with one series for each counter. Building the series with their labels is most of
// the work of a scrape, so they are built once per change of the catalogue. After that a scrape only sets the values.
type families struct {
	epoch  uint64 // the epoch of the catalogue for which the series were built
	byKind [kinds]family

	// The text of the series in the format of the last scrape; nil: not made yet. Clients usually want one format.
	texts      [kinds]*seriesText
	textFormat expfmt.Format
}

// kind selects one of the families.
type kind int

const (
	kindPackets kind = iota
	kindBytes
	kindCompletions
	kindCompletionErrors
	kindDiscontinuities
	kinds
)

// described has the name and the help text of each family.
var described = [kinds]struct{ name, help string }{
	kindPackets:          {"flowtally_packets_total", "Packets that the counter counted."},
	kindBytes:            {"flowtally_bytes_total", "Bytes of these packets; flowtally get shows their basis."},
	kindCompletions:      {"flowtally_completions_total", "Operations of a queue pair that completed, those in error included."},
	kindCompletionErrors: {"flowtally_completion_errors_total", "Operations of a queue pair that completed in error."},
	kindDiscontinuities:  {"flowtally_discontinuities_total", "Points in the total of the counter where packets may be missing or counted twice."},
}

// family is one metric family.
type family struct {
	series []*dto.Metric // by row of the catalogue; nil if this family does not apply to the row
	shown  []*dto.Metric // the subset with a value in this scrape
	rows   []int         // the row of each one shown
}

// kindsOf returns the families for the two values of a counter: packets and bytes, or completions and errors.
func kindsOf(e shm.Entry) (first, second kind) {
	if e.Kind == shm.KindCompletion {
		return kindCompletions, kindCompletionErrors
	}
	return kindPackets, kindBytes
}

// render returns the families with the values of l. The caller must encode them before the next call, which sets the
// values of the same series.
func (f *families) render(l look, epoch uint64) []*dto.MetricFamily {
	if f.epoch != epoch {
		f.build(l.series)
		f.epoch = epoch
	}

	for k := range f.byKind {
		f.byKind[k].shown = f.byKind[k].shown[:0]
		f.byKind[k].rows = f.byKind[k].rows[:0]
	}
	for i := range l.series {
		f.setValues(i, &l.series[i])
	}

	var out []*dto.MetricFamily
	for k := range f.byKind {
		shown := f.byKind[k].shown
		if len(shown) == 0 {
			continue
		}
		out = append(out, &dto.MetricFamily{
			Name:   &described[k].name,
			Help:   &described[k].help,
			Type:   dto.MetricType_COUNTER.Enum(),
			Metric: shown,
		})
	}
	return out
}

// setValues shows the values of row i. A counter without a sample has none, because absent is not zero.
func (f *families) setValues(i int, r *row) {
	if !r.gone {
		f.byKind[kindDiscontinuities].show(i, float64(r.entry.Continuity.Discontinuities))
	}
	if r.value.SampledAt == 0 || r.tooLarge {
		return
	}

	first, second := kindsOf(r.entry)
	f.byKind[first].show(i, float64(r.value.Packets))
	if !r.unlike {
		f.byKind[second].show(i, float64(r.value.Bytes))
	}
}

func (f *family) show(i int, v float64) {
	m := f.series[i]
	*m.Counter.Value = v
	f.shown = append(f.shown, m)
	f.rows = append(f.rows, i)
}

// build makes the series of rows, without values.
func (f *families) build(rows []row) {
	f.texts = [kinds]*seriesText{}
	for k := range f.byKind {
		f.byKind[k] = family{series: make([]*dto.Metric, len(rows))}
	}
	for i := range rows {
		first, second := kindsOf(rows[i].entry)
		labels := labelPairs(rows[i].labels)
		for _, k := range [...]kind{first, second, kindDiscontinuities} {
			f.byKind[k].series[i] = &dto.Metric{Label: labels, Counter: &dto.Counter{Value: new(float64)}}
		}
	}
}

func labelPairs(labels []label) []*dto.LabelPair {
	out := make([]*dto.LabelPair, len(labels))
	for i := range labels {
		out[i] = &dto.LabelPair{Name: &labels[i].name, Value: &labels[i].value}
	}
	return out
}
