package export

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/flowtally/flowtally/shm"

	dto "github.com/prometheus/client_model/go"
)

// mirror is a mirror written by the test.
type mirror struct {
	t       *testing.T
	path    string
	w       *shm.Writer
	handles map[string]shm.Handle
	values  map[string]shm.Value
}

func newMirror(t *testing.T, entries ...shm.Entry) *mirror {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "flowtally-export-")
	if err != nil {
		t.Skip("needs /dev/shm: ", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := &mirror{t: t, path: filepath.Join(dir, "x.mirror"), handles: make(map[string]shm.Handle), values: make(map[string]shm.Value)}
	m.create(entries...)
	t.Cleanup(func() { m.w.Close() })
	return m
}

func (m *mirror) create(entries ...shm.Entry) {
	m.t.Helper()
	w, err := shm.Create(shm.Options{Path: m.path, CoolDown: -1})
	if err != nil {
		m.t.Fatal(err)
	}
	m.w = w
	for _, e := range entries {
		m.add(e)
	}
	for _, e := range m.w.Entries() {
		m.handles[e.Name] = e.Handle
	}
}

func (m *mirror) add(e shm.Entry) {
	m.t.Helper()
	h, err := m.w.Add(e)
	if err != nil {
		m.t.Fatal(err)
	}
	m.handles[e.Name] = h
}

// publish publishes values by name, packets and bytes. Counters without one keep theirs, or stay absent.
func (m *mirror) publish(values map[string][2]uint64) {
	m.t.Helper()
	now := shm.Now()
	for name, v := range values {
		m.values[name] = shm.Value{Packets: v[0], Bytes: v[1], SampledAt: now}
	}
	blocks := make(map[int]*shm.Block)
	for name, v := range m.values {
		h := m.handles[name]
		i := int(h.Index / shm.BlockLen)
		if blocks[i] == nil {
			blocks[i] = new(shm.Block)
		}
		blocks[i][h.Index%shm.BlockLen] = v
	}
	m.w.BeginCycle()
	for i, b := range blocks {
		m.w.PublishBlock(i, b)
	}
	m.w.EndCycle(now)
}

func newExporter(t *testing.T, o Options) *Exporter {
	t.Helper()
	e := New(o)
	t.Cleanup(func() { e.Close() })
	return e
}

// scraped are the values of the series, by name and labels as the text format has them.
type scraped map[string]float64

// scrape gets /metrics in the text format, and parses it by Prometheus' parser.
func scrape(t *testing.T, e *Exporter) scraped {
	t.Helper()
	body, header := fetch(t, e.Handler(), "/metrics", "")
	if got := header.Get("Content-Type"); !strings.HasPrefix(got, "text/plain; version=0.0.4") {
		t.Errorf("Content-Type is %q", got)
	}
	return parse(t, body)
}

func parse(t *testing.T, body []byte) scraped {
	t.Helper()
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		t.Fatalf("%v\n%s", err, body)
	}
	all := make(scraped)
	for name, f := range families {
		for _, m := range f.Metric {
			id := name
			for _, l := range m.Label {
				id += "," + l.GetName() + "=" + l.GetValue()
			}
			if _, twice := all[id]; twice {
				t.Errorf("series %s is there twice", id)
			}
			if f.GetType() == dto.MetricType_COUNTER {
				all[id] = m.Counter.GetValue()
			} else {
				all[id] = m.Gauge.GetValue()
			}
		}
	}
	return all
}

// fetch gets a path, as a client that accepts a format and gzip.
func fetch(t *testing.T, h http.Handler, path, accept string) ([]byte, http.Header) {
	t.Helper()
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, path, nil)
	r.Header.Set("Accept-Encoding", "gzip")
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: status %d: %s", path, w.Code, w.Body)
	}
	z, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return body, w.Header()
}

func (s scraped) want(t *testing.T, series string, v float64) {
	t.Helper()
	if got, ok := s[series]; !ok || got != v {
		t.Errorf("%s = %v (there: %t), want %v", series, got, ok, v)
	}
}

func (s scraped) wantNone(t *testing.T, prefix string) {
	t.Helper()
	for id := range s {
		if strings.HasPrefix(id, prefix) {
			t.Errorf("series %s exists", id)
		}
	}
}
