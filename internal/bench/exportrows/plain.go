package exportrows

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"strconv"
)

// plainScrape makes the text of a scrape as somebody would write it first: for each line, append what stays and then the
// value.
type plainScrape struct {
	lines []plainLine
	text  []byte
	zip   *gzip.Writer
	out   bytes.Buffer
}

// plainLine is a line of the text. A comment has no value.
type plainLine struct {
	name  []byte // with the labels and the blank behind them
	value float64
	has   bool
}

// newPlainScrape takes the lines and the values of a scrape.
func newPlainScrape(scrape []byte) (*plainScrape, error) {
	zip, err := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level of flowtally export
	if err != nil {
		return nil, fmt.Errorf("making a compressor: %w", err)
	}
	p := &plainScrape{zip: zip}
	for line := range bytes.Lines(scrape) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		at := bytes.LastIndexByte(line, ' ') + 1
		value, err := strconv.ParseFloat(string(line[at:]), 64)
		if err != nil || line[0] == '#' {
			p.lines = append(p.lines, plainLine{name: line})
			continue
		}
		p.lines = append(p.lines, plainLine{name: line[:at], value: value, has: true})
	}

	if p.format(); !bytes.Equal(p.text, scrape) {
		return nil, errors.New("formatting a scrape by strconv: it differs from what flowtally export sent")
	}
	return p, nil
}

// format makes the text.
func (p *plainScrape) format() {
	p.text = p.text[:0]
	for i := range p.lines {
		l := &p.lines[i]
		p.text = append(p.text, l.name...)
		if l.has {
			at := len(p.text)
			p.text = strconv.AppendFloat(p.text, l.value, 'g', -1, 64)
			if !bytes.ContainsAny(p.text[at:], ".e") { // OpenMetrics wants a float
				p.text = append(p.text, ".0"...)
			}
		}
		p.text = append(p.text, '\n')
	}
}

// run makes and compresses n texts.
func (p *plainScrape) run(n int) {
	for range n {
		p.format()
		p.out.Reset()
		p.zip.Reset(&p.out)
		_, _ = p.zip.Write(p.text) // writes to a bytes.Buffer never fail
		_ = p.zip.Close()
	}
}
