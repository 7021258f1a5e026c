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

// counterLines returns the lines of the page of one counter.
func counterLines(m *model) []string {
	e, s := &m.counter, m.source
	d := details{m: m}
	d.lines = []string{m.ink.heading.on + " " + format.Printable(e.Name) + m.ink.heading.off, ""}

	var r *row
	if int(e.Handle.Index) < len(s.rowByIndex) {
		r = s.rowByIndex[e.Handle.Index]
	}
	if m.gone || r == nil || r.Counter.Name != e.Name {
		return append(d.lines, " This counter was removed.")
	}
	if !m.paused || r.look == 0 {
		s.read([]*row{r})
	}

	d.values(r)
	d.trend(r)
	d.lines = append(d.lines, "")
	d.entry(e, r)
	return d.lines
}

// details builds the page of one counter.
type details struct {
	m     *model
	lines []string
}

// labelWidth is the width of the labels on the left, and margin the number of blank cells at both sides together.
const (
	labelWidth = 14
	margin     = 2
)

// add adds a label and its text, which may take several lines.
func (d *details) add(label, text string) {
	ink := d.m.ink.label
	for i, part := range strings.Split(d.m.method.Wrap(text, d.room(), ""), "\n") {
		if i > 0 {
			label = ""
		}
		d.lines = append(d.lines, " "+ink.on+fmt.Sprintf("%-*s", labelWidth, label)+ink.off+part)
	}
}

// room returns the width of the texts.
func (d *details) room() int { return max(1, d.m.width-labelWidth-margin) }

// values adds the value, its rates, its age and its note.
func (d *details) values(r *row) {
	reading := &d.m.source.reading
	first, second := "packets", "bytes"
	if r.Completion() {
		first, second = "completions", "errors"
	}
	d.add(first, total(r.value.Packets, r.Present()))
	d.add(second, total(r.value.Bytes, r.Present()))
	d.add(first+"/s", PacketRate.cell(r, reading))
	if r.hasBytes() {
		d.add("bits/s", BitRate.cell(r, reading))
		d.add("bytes/s", ByteRate.cell(r, reading))
	}
	d.add("age", r.AgeCell(reading))
	d.add("note", format.OrDash(r.remark()))
}

// trend adds the bars of the trend and their scale, unless all bars are blank.
func (d *details) trend(r *row) {
	h := &d.m.source.history
	width := min(trendCells, d.room())
	end := h.end(d.m.source.reading.Now)
	bars := string(drawTrend(nil, r.trend, end, width))
	if strings.TrimSpace(bars) == "" {
		return
	}
	d.add("trend", "")
	d.lines[len(d.lines)-1] += bars // append them here, because add would wrap at the blanks
	d.add("", trendScale(r.trend, end, h.step, width))
}

// entry adds the fields of the catalogue's entry.
func (d *details) entry(e *shm.Entry, r *row) {
	d.add("match", format.OrDash(format.Printable(e.Text)))
	d.add("source", format.Printable(r.SourceCell()))
	d.add("byte basis", format.Printable(format.OrDash(e.ByteBasis)))
	d.add("kind", format.Printable(format.OrDash(e.Kind)))
	for i, key := range slices.Sorted(maps.Keys(e.Labels)) {
		label := "labels"
		if i > 0 {
			label = ""
		}
		d.add(label, format.Printable(key+"="+e.Labels[key]))
	}
	d.add("gaps", format.Plural(e.Continuity.Discontinuities, "discontinuity", "discontinuities"))
	d.add("added", format.Age(time.Duration(d.m.source.reading.Now-e.AddedAt))+" ago")
	d.add("handle", handleText(e.Handle))
}

func handleText(h shm.Handle) string {
	return fmt.Sprintf("slot %d, generation %d", h.Index, h.Generation)
}

// trendScale returns the rate of the highest bar, and the time from the first bar to the last.
func trendScale(t *trend, end, step int64, width int) string {
	most := float32(0)
	for pass := end - int64(width) + 1; pass <= end; pass++ {
		v, _ := t.at(pass)
		most = max(most, v)
	}
	return fmt.Sprintf("highest %s/s; %s in all", format.Rate(float64(most)), format.Age(time.Duration(int64(width)*step)))
}
