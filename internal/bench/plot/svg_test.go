package plot_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/bench/plot"
)

func TestSVGIsWellFormedAndHasEveryCurve(t *testing.T) {
	panels := []plot.Panel{
		{Title: "masks", XLabel: "masks", YLabel: "ns", Curves: []plot.Curve{
			{Name: "ours", Points: []plot.Point{{100, 20}, {1, 10}}},
			{Name: "a < b", Dashed: true, Points: []plot.Point{{1, 10}, {10, 1000}}},
		}},
		{Title: "rules", Curves: []plot.Curve{{Name: "ours", Points: []plot.Point{{65536, 50}}}}},
		{Title: "empty"},
	}
	var b bytes.Buffer
	if err := plot.SVG(&b, "cost", []string{"a note"}, panels); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(b.Bytes())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	out := b.String()
	// The first point is the leftmost, whatever the order: 1 and 10 lie at the left and on the lower edge of 10 to 1,000.
	for _, want := range []string{`d="M64.0 396.0 L524.0 347.8"`, "a &lt; b", "stroke-dasharray", "a note", ">100,000<"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in %s", want, out)
		}
	}
	if strings.Contains(out, "NaN") || strings.Contains(out, "Inf") {
		t.Error("a coordinate is no number")
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestSVGSaysWhatFailed(t *testing.T) {
	if err := plot.SVG(full{}, "", nil, nil); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("%v", err)
	}
}
