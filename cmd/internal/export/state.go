package export

import (
	"cmp"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// gauges collects the metric families about the mirror, its writer and the exporter itself.
type gauges struct{ out []*dto.MetricFamily }

// gauge adds a series to the family of that name. Callers must add all series of a family one after the other.
func (g *gauges) gauge(name, help string, v float64, labels ...label) {
	g.add(name, help, dto.MetricType_GAUGE, &dto.Metric{Label: labelPairs(labels), Gauge: &dto.Gauge{Value: &v}})
}

func (g *gauges) counter(name, help string, v float64, labels ...label) {
	g.add(name, help, dto.MetricType_COUNTER, &dto.Metric{Label: labelPairs(labels), Counter: &dto.Counter{Value: &v}})
}

func (g *gauges) add(name, help string, t dto.MetricType, m *dto.Metric) {
	if n := len(g.out); n > 0 && g.out[n-1].GetName() == name {
		g.out[n-1].Metric = append(g.out[n-1].Metric, m)
		return
	}
	g.out = append(g.out, &dto.MetricFamily{Name: &name, Help: &help, Type: t.Enum(), Metric: []*dto.Metric{m}})
}

// states are the values of the label state of flowtally_writer_state.
var states = []string{"boot", "run", "halt", "fail", "stale", "dead"}

// state returns the families about the mirror, its writer and the exporter itself.
func (e *Exporter) state(l look) []*dto.MetricFamily {
	var g gauges
	g.gauge("flowtally_build_info", "Version of this program, and of the format of the mirror that it reads. Always 1.", 1,
		label{"goversion", runtime.Version()}, label{"version", text(e.options.Version)})
	g.gauge("flowtally_mirror_up", "1 if the mirror can be read, else 0, without series of its counters.", oneIf(l.err == nil))
	g.gauge("flowtally_counters_limit", "The most counters that are exported (--max-counters).", float64(e.options.MaxCounters))
	if l.err == nil {
		g.mirror(l)
		g.gauge("flowtally_counters_dropped", "Selected counters beyond the limit, which have no series.", float64(e.catalogue.dropped))
		g.counters(l)
	}
	e.conditions.render(&g)
	e.pushes.render(&g)
	return g.out
}

// oneIf returns 1 for true, and 0 for false.
func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// mirror adds the families of the mirror's header.
func (g *gauges) mirror(l look) {
	s := l.status
	for _, state := range states {
		g.gauge("flowtally_writer_state", "1 for the state of the writer; stale and dead: it gives no sign of life.", oneIf(state == l.writer.State), label{"state", state})
	}
	g.gauge("flowtally_writer_heartbeat_age_seconds", "Time since the writer's last sign of life.", s.Age.Seconds())
	g.gauge("flowtally_writer_heartbeat_period_seconds", "The longest time between two signs of life of a living writer.", s.HeartbeatPeriod.Seconds())
	g.gauge("flowtally_writer_start_time_seconds", "Start of the writer, in seconds since 1970.", float64(s.Started.UnixNano())/1e9)
	g.counter("flowtally_writer_takeovers_total", "Times that a writer has taken the mirror over.", float64(s.Takeovers))
	g.counter("flowtally_poll_cycles_total", "Completed poll cycles.", float64(s.Cycle))
	if s.Cycle > 0 {
		g.gauge("flowtally_poll_period_seconds", "The time from one poll cycle to the next, at present; 0: no fixed time.", s.PollPeriod.Seconds())
		g.gauge("flowtally_mirror_age_seconds", "Time since the end of the last poll cycle: the age of the values.", s.CycleAge.Seconds())
	}
	g.counter("flowtally_mirror_refused_total", "Counters that were refused because the mirror was full.", float64(s.Refused))
}

// counters adds the families about all exported counters together, and those about doubtful values of single ones.
func (g *gauges) counters(l look) {
	type class struct{ kind, backend string }
	countByClass := make(map[class]float64)
	absent := 0.0
	oldest := int64(0) // a sample time, or 0 without any published value
	for i := range l.rows {
		r := &l.rows[i]
		countByClass[class{text(r.entry.Kind), text(cmp.Or(r.backend(), "none"))}]++
		switch at := r.value.SampledAt; {
		case at == 0:
			absent++
		case !r.device && (oldest == 0 || at < oldest):
			oldest = at
		}
	}

	classes := slices.SortedFunc(maps.Keys(countByClass), func(a, b class) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.backend, b.backend))
	})
	for _, c := range classes {
		g.gauge("flowtally_counters", "Exported counters by the backend that counts them.", countByClass[c], label{"backend", c.backend}, label{"kind", c.kind})
	}
	g.gauge("flowtally_counters_absent", "Exported counters that were never sampled: they have no value, and no series.", absent)
	if oldest != 0 {
		g.gauge("flowtally_oldest_sample_age_seconds", "Age of the oldest value that is exported.", max(0, time.Duration(l.now-oldest).Seconds()))
	}
	for i := range l.rows {
		r := &l.rows[i]
		for _, why := range r.reservations() {
			g.gauge("flowtally_counter_reservation", "A reservation about the value of a counter. Always 1.", 1,
				label{counterLabel, text(r.entry.Name)}, label{"reason", why})
		}
	}
}

// backend returns the first word of the counter's source, such as "xdp" of "xdp:eth0/native"; "" if nothing counts it.
func (r *row) backend() string {
	if i := strings.IndexAny(r.entry.Source, ": "); i >= 0 {
		return r.entry.Source[:i]
	}
	return r.entry.Source
}

// reservations returns the reasons to doubt the value of a counter. Discontinuities and the state of the writer have
// metrics of their own.
func (r *row) reservations() (why []string) {
	if r.gone {
		return nil
	}
	if r.entry.Ambiguous {
		why = append(why, "ambiguous")
	}
	if r.value.SampledAt != 0 && !r.entry.Valid {
		why = append(why, "invalid")
	}
	if r.entry.Stale {
		why = append(why, "stale")
	}
	if r.unread {
		why = append(why, "unread")
	}
	return why
}

// gather reads the mirror and returns all metrics. Callers must hold e.mu until they have encoded them, because the next
// call changes them in place.
func (e *Exporter) gather(process prometheus.Gatherer) ([]*dto.MetricFamily, error) {
	own, err := process.Gather()
	l := e.look()
	out := append(own, e.state(l)...)
	if l.err == nil {
		out = append(out, e.families.render(l, e.catalogue.epoch)...)
	}
	return out, err
}
