package export

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"testing"
)

// The figures in docs/export.md come from this test.
func TestScrapeAndPushPrintTheirSizes(t *testing.T) {
	for _, flows := range []int{16, 256, 4096} {
		m := newMirror(t)
		values := make(map[string][2]uint64, flows)
		for i := range flows {
			e := webEntry(fmt.Sprintf("tenant-%04d-https", i))
			e.Labels = map[string]string{"team": fmt.Sprintf("team-%d", i%16)}
			m.add(e)
			n := uint64(i+1) * 7919 * 104729
			values[e.Name] = [2]uint64{n, n * 743}
		}
		m.publish(values)
		e := newExporter(t, Options{Path: m.path, LabelKeys: []string{"team"}})
		body, _ := fetch(t, e.Handler(), "/metrics", "application/openmetrics-text;version=1.0.0")
		var zipped bytes.Buffer
		z, err := gzip.NewWriterLevel(&zipped, gzip.BestSpeed)
		if err != nil {
			t.Fatal(err)
		}
		z.Write(body)
		z.Close()
		series := len(scrape(t, e))
		requests, err := pusherOf(t, e).requests()
		if err != nil {
			t.Fatal(err)
		}
		pushed := 0
		for _, r := range requests {
			body, err := packed(r)
			if err != nil {
				t.Fatal(err)
			}
			pushed += body.Len()
		}
		t.Logf("%d flows: %d series, %d bytes, %d by gzip; a push of %d requests, %d bytes by gzip", flows, series, len(body), zipped.Len(), len(requests), pushed)
		if series < 3*flows {
			t.Errorf("%d series of %d flows", series, flows)
		}
	}
}
