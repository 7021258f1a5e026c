package export

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/cmd/internal/selection"
	"github.com/flowtally/flowtally/shm"
)

func teamEntry(name, team string) shm.Entry {
	e := webEntry(name)
	if team != "" {
		e.Labels = map[string]string{"team": team}
	}
	return e
}

// sumBy returns the groups of those label keys.
func sumBy(t *testing.T, keys ...string) func(shm.Entry) selection.Group {
	t.Helper()
	s, err := selection.New(nil, selection.Options{SumBy: keys})
	if err != nil {
		t.Fatal(err)
	}
	return s.Group
}

// There is one series for each group, in Prometheus and by OTLP. A counter without a value adds nothing, bytes on
// different bases have no sum, and an empty label is not a label.
func TestGroupsAreExportedAsSums(t *testing.T) {
	payload := teamEntry("c", "net")
	payload.ByteBasis = "l3"
	empty := webEntry("e")
	empty.Labels = map[string]string{"team": ""}
	odd := teamEntry("odd", "ops")
	odd.Unit = "drops"
	m := newMirror(t, teamEntry("a", "ops"), teamEntry("b", "ops"), teamEntry("d", "net"), payload, webEntry("none"), empty,
		teamEntry("never", "lab"), odd)
	m.publish(map[string][2]uint64{"a": {10, 640}, "b": {1, 64}, "c": {5, 50}, "d": {7, 70}, "none": {2, 20}, "e": {3, 30}, "odd": {9, 90}})
	e := newExporter(t, Options{Path: m.path, Group: sumBy(t, "team")})
	s := scrape(t, e)
	s.want(t, "flowtally_packets_total,team=ops", 11)
	s.want(t, "flowtally_bytes_total,team=ops", 704)
	s.want(t, "flowtally_packets_total,team=net", 12)
	s.wantNone(t, "flowtally_bytes_total,team=net")
	s.want(t, "flowtally_packets_total", 5)
	s.wantNone(t, "flowtally_packets_total,team=lab")
	s.want(t, "flowtally_discontinuities_total,team=lab", 0)
	s.want(t, "flowtally_packets_total,team=ops,unit=drops", 9)
	s.want(t, "flowtally_counters_absent", 1)
	s.wantNone(t, "flowtally_packets_total,counter")

	requests, err := pusherOf(t, e).requests()
	if err != nil {
		t.Fatal(err)
	}
	pushed := make(map[string]int64)
	for _, r := range requests {
		metric := r.ResourceMetrics[0].ScopeMetrics[0].Metrics[0]
		for _, p := range metric.GetSum().DataPoints {
			id := metric.Name
			for _, a := range p.Attributes {
				id += "," + a.Key + "=" + a.Value.GetStringValue()
			}
			pushed[id] = p.GetAsInt()
		}
	}
	if pushed["flowtally.packets,team=ops"] != 11 || pushed["flowtally.packets,team=net"] != 12 || pushed["flowtally.bytes,team=net"] != 0 {
		t.Errorf("pushed %v", pushed)
	}
}

func TestSumAbove64BitsIsNotExported(t *testing.T) {
	const most = 1<<64 - 1
	m := newMirror(t, teamEntry("a", "ops"), teamEntry("b", "ops"), teamEntry("c", "net"))
	m.publish(map[string][2]uint64{"a": {5, most}, "b": {1, 0}, "c": {7, most}})
	e := newExporter(t, Options{Path: m.path, Group: sumBy(t, "team")})
	scrape(t, e).want(t, "flowtally_packets_total,team=ops", 6)
	m.publish(map[string][2]uint64{"b": {2, 1}})
	s := scrape(t, e)
	s.wantNone(t, "flowtally_packets_total,team=ops")
	s.wantNone(t, "flowtally_bytes_total,team=ops")
	s.want(t, "flowtally_discontinuities_total,team=ops", 0)
	s.want(t, "flowtally_packets_total,team=net", 7)
	m.publish(map[string][2]uint64{"b": {9, 9}})
	scrape(t, e).wantNone(t, "flowtally_packets_total,team=ops")
	requests, err := pusherOf(t, e).requests()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		metric := r.ResourceMetrics[0].ScopeMetrics[0].Metrics[0]
		if n := len(metric.GetSum().DataPoints); metric.Name == "flowtally.packets" && n != 1 {
			t.Errorf("%s: %d points were pushed", metric.Name, n)
		}
	}
}

// Between two looks the counter was removed and added again. Its whole new total counts, even if it is larger than the
// last one, and even if a look in between found the counter without a value.
func TestCounterThatBeganAgainAddsItsWholeTotal(t *testing.T) {
	for _, absent := range []bool{false, true} {
		m := newMirror(t, teamEntry("a", "ops"))
		m.publish(map[string][2]uint64{"a": {10, 100}})
		e := newExporter(t, Options{Path: m.path, Group: sumBy(t, "team")})
		scrape(t, e).want(t, "flowtally_packets_total,team=ops", 10)
		if err := m.w.Remove(m.handles["a"]); err != nil {
			t.Fatal(err)
		}
		m.add(teamEntry("a", "ops"))
		if absent {
			scrape(t, e).want(t, "flowtally_packets_total,team=ops", 10)
		}
		m.publish(map[string][2]uint64{"a": {15, 150}})
		scrape(t, e).want(t, "flowtally_packets_total,team=ops", 25)
	}
}

// A model checks the sums while counters count, are removed, come back, are read late, and change their writer.
func TestSumsNeverFall(t *testing.T) {
	teams := []string{"ops", "net"}
	rapid.Check(t, func(rt *rapid.T) {
		m := newMirror(t)
		e := newExporter(t, Options{Path: m.path, Group: sumBy(t, "team")})
		total := make(map[string]uint64)    // by team
		live := make(map[string]int)        // counters by team
		value := make(map[string][2]uint64) // by name
		teamOf := make(map[string]string)   // by name
		for range rapid.IntRange(1, 15).Draw(rt, "steps") {
			name := fmt.Sprint("c", rapid.IntRange(0, 4).Draw(rt, "counter"))
			team, there := teamOf[name]
			switch rapid.IntRange(0, 5).Draw(rt, "step") {
			case 0:
				if there {
					if err := m.w.Remove(m.handles[name]); err != nil {
						rt.Fatal(err)
					}
					delete(m.values, name)
					delete(value, name)
					delete(teamOf, name)
					if live[team]--; live[team] == 0 {
						delete(total, team)
					}
				}
			case 1:
				m.w.Close()
				m.create()
			default:
				if !there {
					team = rapid.SampledFrom(teams).Draw(rt, "team")
					m.add(teamEntry(name, team))
					teamOf[name] = team
					live[team]++
				}
				n := rapid.Uint64Range(0, 1000).Draw(rt, "packets")
				v := value[name]
				value[name] = [2]uint64{v[0] + n, v[1] + 64*n}
				total[team] += n
				m.publish(map[string][2]uint64{name: value[name]})
			}
			s := scrape(t, e)
			for _, team := range teams {
				if live[team] == 0 {
					s.wantNone(t, "flowtally_packets_total,team="+team)
					continue
				}
				s.want(t, "flowtally_packets_total,team="+team, float64(total[team]))
				s.want(t, "flowtally_bytes_total,team="+team, float64(64*total[team]))
			}
			if t.Failed() {
				rt.FailNow()
			}
		}
	})
}
