package exportrows

import (
	"testing"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/rowtest"
)

func TestRowsAreMeasured(t *testing.T) { rowtest.Measure(t, Rows()) }

func BenchmarkScrape(b *testing.B) {
	s, err := open(b.Context(), bench.Env{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Ours(b.Context(), 1); err != nil {
			b.Fatal(err)
		}
	}
}
