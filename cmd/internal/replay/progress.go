package replay

import (
	"fmt"
	"io"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/capture"
	"github.com/flowtally/flowtally/cmd/internal/format"
)

// Progress is a line on a terminal, redrawn at most ten times a second.
type Progress struct {
	terminal    io.Writer
	in          *capture.File
	since, last time.Time
}

// NewProgress returns a Progress that shows how much of a capture is read.
func NewProgress(terminal io.Writer, in *capture.File) *Progress {
	return &Progress{terminal: terminal, in: in, since: time.Now()}
}

// Show draws the line with the number of records so far.
func (p *Progress) Show(records uint64) {
	now := time.Now()
	if now.Sub(p.last) < 100*time.Millisecond {
		return
	}
	p.last = now
	fmt.Fprintf(p.terminal, "\r%s  %s records, %s/s%s", format.Progress(p.in.Offset(), p.in.Size), format.Count(records),
		format.Rate(float64(records)/now.Sub(p.since).Seconds()), format.ClearLine)
}

// Clear removes the line.
func (p *Progress) Clear() {
	if !p.last.IsZero() {
		fmt.Fprint(p.terminal, "\r"+format.ClearLine)
	}
}
