package export

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// TestSeriesAreWrittenAsTheEncoderWritesThem compares the lines of the counters in each format with expfmt's own.
func TestSeriesAreWrittenAsTheEncoderWritesThem(t *testing.T) {
	m := newMirror(t)
	values := make(map[string][2]uint64)
	for i, n := range []uint64{0, 1, 2, 999_999, 1 << 20, 1e6, 21e6, 1<<53 + 2, 1<<64 - 1} {
		e := webEntry(fmt.Sprint("flow-", i))
		e.Labels = map[string]string{"team": "t\"\\{},=", "app.kubernetes.io/name": fmt.Sprint("a ", i, " 0")}
		m.add(e)
		values[e.Name] = [2]uint64{n, n / 3}
	}
	m.add(webEntry("never"))
	e := newExporter(t, Options{Path: m.path, LabelKeys: []string{"team", "app.kubernetes.io/name"}})

	formats := []expfmt.Format{
		expfmt.NewFormat(expfmt.TypeTextPlain),
		expfmt.NewFormat(expfmt.TypeOpenMetrics),
		expfmt.NewFormat(expfmt.TypeTextPlain).WithEscapingScheme(model.ValueEncodingEscaping),
		expfmt.NewFormat(expfmt.TypeProtoText),
	}
	for _, format := range formats[:3] {
		if zeroOf(format) == "" {
			t.Errorf("%s is no format of text", format)
		}
	}
	for round := range uint64(3) { // the first one makes the text, the second one uses it, the third one has other counters
		if round == 2 {
			if err := m.w.Remove(m.handles["flow-3"]); err != nil {
				t.Fatal(err)
			}
			delete(values, "flow-3")
			delete(m.values, "flow-3")
			m.add(webEntry("new"))
		}
		for name, v := range values {
			values[name] = [2]uint64{max(v[0], v[0]+round), v[1] + round}
		}
		m.publish(values)
		for _, format := range formats {
			for range 2 {
				if got, want := seriesOf(t, e, format), encoded(t, e, format); got != want || strings.Count(want, "\n") < 2 {
					t.Errorf("round %d, %s: got\n%s\nwant\n%s", round, format, got, want)
				}
			}
		}
	}
}

// seriesOf returns the lines that a scrape has of the counters.
func seriesOf(t *testing.T, e *Exporter, format expfmt.Format) string {
	t.Helper()
	var b bytes.Buffer
	if _, err := e.writeMetrics(&b, format, prometheus.NewRegistry()); err != nil {
		t.Fatal(err)
	}
	if kept := e.families.textFormat == format && e.families.texts[kindPackets] != nil; kept != (zeroOf(format) != "") {
		t.Errorf("%s: the text of the series is kept: %t", format, kept)
	}
	return ofCounters(b.String())
}

// encoded returns the lines of seriesOf, from expfmt alone.
func encoded(t *testing.T, e *Exporter, format expfmt.Format) string {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	list, err := e.gather(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, f := range list {
		if err := expfmt.NewEncoder(&b, format).Encode(f); err != nil {
			t.Fatal(err)
		}
	}
	return ofCounters(b.String())
}

// ofCounters returns the lines about the families of described.
func ofCounters(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		for _, d := range described {
			if strings.Contains(line, strings.TrimSuffix(d.name, "_total")) {
				out.WriteString(line)
				break
			}
		}
	}
	return out.String()
}
