package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/internal/lab/schema"
	"github.com/flowtally/flowtally/shm"
)

func webEntry(name string) shm.Entry {
	return shm.Entry{Name: name, Kind: "flow", Text: "ingress on eth0: any", Source: "xdp:eth0/native", ByteBasis: "l2", Valid: true}
}

func TestMetricsShowTheMirrorsValuesAndState(t *testing.T) {
	web := webEntry("web")
	web.Labels = map[string]string{"team": "ops", "host": "a"}
	web.Continuity.Discontinuities = 2
	out := webEntry("out")
	out.Text, out.Ambiguous = "egress on eth0: any", true
	m := newMirror(t, web, out, webEntry("never"),
		shm.Entry{Name: "sent", Kind: shm.KindCompletion, Source: "rdma:rxe0/poll_cq", Valid: true, Labels: map[string]string{"team": "storage"}})
	m.publish(map[string][2]uint64{"web": {10, 640}, "out": {0, 0}, "sent": {41_000, 256}})
	e := newExporter(t, Options{Path: m.path, LabelKeys: []string{"team"}, Version: "v1"})
	for range 2 { // the second scrape uses the kept series
		s := scrape(t, e)
		s.want(t, "flowtally_packets_total,counter=web,direction=ingress,team=ops", 10)
		s.want(t, "flowtally_bytes_total,counter=web,direction=ingress,team=ops", 640)
		s.want(t, "flowtally_discontinuities_total,counter=web,direction=ingress,team=ops", 2)
		s.want(t, "flowtally_packets_total,counter=out,direction=egress", 0)
		s.want(t, "flowtally_completions_total,counter=sent,team=storage", 41_000)
		s.want(t, "flowtally_completion_errors_total,counter=sent,team=storage", 256)
		s.wantNone(t, "flowtally_packets_total,counter=never") // absent is not zero
		s.wantNone(t, "flowtally_bytes_total,counter=never")
		s.wantNone(t, "flowtally_packets_total,counter=sent")
		s.want(t, "flowtally_discontinuities_total,counter=never,direction=ingress", 0)
		s.want(t, "flowtally_counters_absent", 1)
		s.want(t, "flowtally_counters,backend=xdp,kind=flow", 3)
		s.want(t, "flowtally_counters,backend=rdma,kind=completion", 1)
		s.want(t, "flowtally_counter_reservation,counter=out,reason=ambiguous", 1)
		s.want(t, "flowtally_mirror_up", 1)
		s.want(t, "flowtally_poll_cycles_total", 1)
		s.want(t, "flowtally_writer_state,state=run", 1)
		s.want(t, "flowtally_writer_state,state=dead", 0)
		s.wantNone(t, "flowtally_condition")
		s.wantNone(t, "flowtally_otlp")
	}
	m.publish(map[string][2]uint64{"web": {11, 704}, "never": {1, 64}})
	s := scrape(t, e)
	s.want(t, "flowtally_packets_total,counter=web,direction=ingress,team=ops", 11)
	s.want(t, "flowtally_packets_total,counter=never,direction=ingress", 1)
	m.add(webEntry("new"))
	m.publish(map[string][2]uint64{"new": {5, 320}})
	s = scrape(t, e)
	s.want(t, "flowtally_packets_total,counter=new,direction=ingress", 5)
	s.want(t, "flowtally_packets_total,counter=web,direction=ingress,team=ops", 11)
	if err := m.w.Remove(m.handles["web"]); err != nil {
		t.Fatal(err)
	}
	scrape(t, e).wantNone(t, "flowtally_packets_total,counter=web")
}

func TestOpenMetricsIsNegotiated(t *testing.T) {
	m := newMirror(t, webEntry("web"))
	m.publish(map[string][2]uint64{"web": {1 << 52, 640}})
	e := newExporter(t, Options{Path: m.path})
	body, header := fetch(t, e.Handler(), "/metrics", "application/openmetrics-text;version=1.0.0")
	text := string(body)
	if !strings.HasPrefix(header.Get("Content-Type"), "application/openmetrics-text") || !strings.HasSuffix(text, "\n# EOF\n") ||
		!strings.Contains(text, "# TYPE flowtally_packets counter\n") || !strings.Contains(text, "flowtally_packets_total{counter=\"web\",direction=\"ingress\"} 4.503599627370496e+15\n") {
		t.Errorf("%v\n%s", header, text)
	}
}

// The names, labels and sources in a mirror must not add a line, a series or a label, nor make the scrape invalid.
func TestHostileTextAddsNoSeries(t *testing.T) {
	evil := []string{
		"a\nflowtally_packets_total{counter=\"web\"} 1e9", `b"} 1` + "\n", `c\`, "d\xff\xfe", "f,x=\"y\"", "# EOF", "g\r\n# EOF\n", "\u202e", "h\xff\xfe",
	}
	m := newMirror(t)
	values := make(map[string][2]uint64)
	for i, name := range evil {
		e := webEntry(strings.Repeat(string(rune('A'+i)), len(name))) // the writer refuses the names of evil
		e.Source, e.Text = `xdp"\{}=,`, `ingress" on `
		e.Labels = map[string]string{"team": `t"\{},=`, "bad-key": e.Name}
		m.add(e)
		values[e.Name] = [2]uint64{uint64(i + 1), 0}
	}
	m.publish(values)
	data, err := os.ReadFile(m.path)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range evil {
		data = bytes.ReplaceAll(data, bytes.Repeat([]byte{byte('A' + i)}, len(name)), []byte(name))
	}
	f, err := os.OpenFile(m.path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
	f.Close()
	e := newExporter(t, Options{Path: m.path, LabelKeys: []string{"team", "bad-key"}})
	s := scrape(t, e)
	n := 0
	for id := range s {
		if strings.HasPrefix(id, "flowtally_packets_total,") {
			n++
		}
	}
	if n != len(evil) {
		t.Errorf("%d series of %d counters: %v", n, len(evil), s)
	}
	for i, name := range evil {
		s.want(t, fmt.Sprintf(`flowtally_packets_total,bad_key=%s,counter=%[1]s,team=t"\{},=`, text(name)), float64(i+1))
	}
	if _, err := pusherOf(t, e).requests(); err != nil {
		t.Error(err)
	}
	body, _ := fetch(t, e.Handler(), "/v1/counters", "")
	var r view.ReadingJSON
	if err := json.Unmarshal(body, &r); err != nil || len(r.Counters) != len(evil) {
		t.Errorf("%v: %d counters", err, len(r.Counters))
	}
	get, err := schema.Read("../../../docs/schema/get.json")
	if err == nil {
		err = schema.Validate(get, body)
	}
	if err != nil {
		t.Errorf("/v1/counters is not of the schema of get: %v", err)
	}
}

// A counter added later never pushes out an older one, whatever its name and slot.
func TestOldestCountersKeepTheirSeriesAtTheLimit(t *testing.T) {
	m := newMirror(t)
	var log strings.Builder
	e := newExporter(t, Options{Path: m.path, MaxCounters: 3, Logger: loggerTo(&log)})
	for _, name := range []string{"z", "y", "x"} {
		m.add(webEntry(name))
	}
	m.publish(map[string][2]uint64{"x": {1, 1}, "y": {1, 1}, "z": {1, 1}})
	s := scrape(t, e)
	s.want(t, "flowtally_counters_dropped", 0)
	if err := m.w.Remove(m.handles["y"]); err != nil {
		t.Fatal(err)
	}
	delete(m.values, "y")
	for _, name := range []string{"c", "b", "a"} { // one has the slot of y
		m.add(webEntry(name))
	}
	m.publish(map[string][2]uint64{"a": {1, 1}, "b": {1, 1}, "c": {1, 1}})
	s = scrape(t, e)
	for name, is := range map[string]bool{"z": true, "x": true, "c": true, "b": false, "a": false} {
		if _, got := s["flowtally_packets_total,counter="+name+",direction=ingress"]; got != is {
			t.Errorf("%s is exported: %t", name, got)
		}
	}
	s.want(t, "flowtally_counters_dropped", 2)
	s.want(t, "flowtally_counters_limit", 3)
	scrape(t, e)
	if n := strings.Count(log.String(), "not exported"); n != 1 {
		t.Errorf("the bound was logged %d times:\n%s", n, log.String())
	}
}

// Nor does it count against the limit.
func TestUnselectedCounterHasNoSeries(t *testing.T) {
	m := newMirror(t, webEntry("dns"), webEntry("web"))
	m.publish(map[string][2]uint64{"dns": {1, 1}, "web": {1, 1}})
	e := newExporter(t, Options{Path: m.path, MaxCounters: 1, Select: func(e shm.Entry) bool { return e.Name == "web" }})
	s := scrape(t, e)
	s.want(t, "flowtally_packets_total,counter=web,direction=ingress", 1)
	s.want(t, "flowtally_counters_dropped", 0)
	s.wantNone(t, "flowtally_packets_total,counter=dns")
}

func TestKeysThatCollideAsLabelNamesAreRefused(t *testing.T) {
	for _, tc := range []struct {
		keys []string
		want string // of the error; "": none
	}{
		{[]string{"team", "app.kubernetes.io/name"}, ""},
		{[]string{"1st"}, ""},
		{[]string{"a.b", "a-b"}, "both become the label a_b"},
		{[]string{"counter"}, "have a label counter already"},
		{[]string{"instance"}, "have a label instance already"},
		{[]string{"__name__"}, "reserves names"},
		{[]string{""}, "is empty"},
		{[]string{"ключ"}, "reserves names"},
	} {
		err := ValidateLabelKeys(tc.keys)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %v, want %q", tc.keys, err, tc.want)
		}
	}
}
