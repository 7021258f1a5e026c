package top

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/shm"
)

// counterLines are the lines of the page of one counter.
func counterLines(m *model) []string {
	e, s := &m.counter, m.source
	lines := []string{m.ink.heading.on + " " + format.Printable(e.Name) + m.ink.heading.off, ""}
	const labels = 14
	line := func(label, text string) {
		room := max(1, m.width-labels-2)
		for i, part := range strings.Split(m.method.Wrap(text, room, ""), "\n") {
			if i > 0 {
				label = ""
			}
			lines = append(lines, " "+m.ink.label.on+fmt.Sprintf("%-*s", labels, label)+m.ink.label.off+part)
		}
	}
	var r *row
	if int(e.Handle.Index) < len(s.byIndex) {
		r = s.byIndex[e.Handle.Index]
	}
	if m.gone || r == nil || r.Counter.Name != e.Name {
		return append(lines, " This counter was removed.")
	}
	if !m.paused || r.look == 0 {
		s.read([]*row{r})
	}
	first, second := "packets", "bytes"
	if r.Completion() {
		first, second = "completions", "errors"
	}
	line(first, total(r.value.Packets, r.Present()))
	line(second, total(r.value.Bytes, r.Present()))
	line(first+"/s", PacketRate.cell(r, &s.reading))
	if r.hasBytes() {
		line("bits/s", BitRate.cell(r, &s.reading))
		line("bytes/s", ByteRate.cell(r, &s.reading))
	}
	line("age", r.AgeCell(&s.reading))
	line("note", format.OrDash(r.remark()))
	width := max(1, min(trendCells, m.width-labels-2))
	end := s.history.end(s.reading.Now)
	if bars := string(drawTrend(nil, r.trend, end, width)); strings.TrimSpace(bars) != "" {
		line("trend", "")
		lines[len(lines)-1] += bars
		line("", trendScale(r.trend, end, s.history.step, width))
	}
	lines = append(lines, "")
	line("match", format.OrDash(format.Printable(e.Text)))
	line("source", format.Printable(r.SourceCell()))
	line("byte basis", format.Printable(format.OrDash(e.ByteBasis)))
	line("kind", format.Printable(format.OrDash(e.Kind)))
	for i, key := range slices.Sorted(maps.Keys(e.Labels)) {
		label := "labels"
		if i > 0 {
			label = ""
		}
		line(label, format.Printable(key+"="+e.Labels[key]))
	}
	line("gaps", format.Plural(e.Continuity.Discontinuities, "discontinuity", "discontinuities"))
	line("added", format.Age(time.Duration(s.reading.Now-e.AddedAt))+" ago")
	line("handle", handleText(e.Handle))
	return lines
}

func handleText(h shm.Handle) string {
	return fmt.Sprintf("slot %d, generation %d", h.Index, h.Generation)
}

// trendScale returns the rate of the highest bar of a trend, and the time that all bars span.
func trendScale(t *trend, end, step int64, width int) string {
	most := float32(0)
	for pass := end - int64(width) + 1; pass <= end; pass++ {
		v, _ := t.at(pass)
		most = max(most, v)
	}
	return fmt.Sprintf("highest %s/s; %s in all", format.Rate(float64(most)), format.Age(time.Duration(int64(width)*step)))
}
