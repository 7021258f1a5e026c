// Package keep keeps the figures of the bench: a JSON file for each family of processors, from which docs/performance.md
// and its picture are made.
//
// The newest figure of a row wins. A row that a run does not measure keeps the figure that it has, with its date and
// commit. So does a row that was disturbed, unless its older figure was disturbed too. A figure goes with its row, and
// when the row gets another reference: ratios to different references are not comparable.
package keep

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/flowtally/flowtally/internal/bench"
)

// File has the figures of one family of processors.
type File struct {
	Schema  int           `json:"schema"`
	Core    string        `json:"core"`    // [bench.Machine.Core] of each machine that was measured
	Machine bench.Machine `json:"machine"` // of the newest run
	Rows    []Figure      `json:"rows"`
	Points  []Figure      `json:"points"` // of the picture
}

// Figure is what a run measured of a row.
type Figure struct {
	Name   string   `json:"name"`
	Date   string   `json:"date"`             // of the run, in UTC: 2026-11-28
	Commit string   `json:"commit,omitempty"` // with + where the sources had changes
	Ours   float64  `json:"ours_ns"`          // bytes, where the unit of the row begins with them
	Ref    string   `json:"ref"`              // [bench.Row].Ref at that time
	RefNS  float64  `json:"ref_ns"`
	Ratio  float64  `json:"ratio"`
	Low    *float64 `json:"low,omitempty"` // interval of the ratio, as in bench.Result
	High   *float64 `json:"high,omitempty"`

	// Noisy: the figure is of a row that was disturbed, as bench.Result says.
	Noisy     bool `json:"noisy,omitempty"`
	Tried     int  `json:"rounds_tried,omitempty"`
	Disturbed int  `json:"rounds_disturbed,omitempty"`
}

// Run says when and where a report was measured.
type Run struct {
	Time   time.Time
	Commit string
}

// figure is the figure of a result that has one.
func (r Run) figure(of bench.Result) Figure {
	return Figure{
		Name:      of.Name,
		Date:      r.Time.UTC().Format(time.DateOnly),
		Commit:    r.Commit,
		Ours:      rounded(*of.Ours),
		Ref:       of.Ref,
		RefNS:     rounded(*of.RefNS),
		Ratio:     rounded(*of.Ratio),
		Low:       roundedOrNil(of.Low),
		High:      roundedOrNil(of.High),
		Noisy:     of.Noisy,
		Tried:     of.Tried,
		Disturbed: of.Disturbed,
	}
}

// rounded is v to four digits: more would be noise, and in every diff.
func rounded(v float64) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	if err != nil {
		return v
	}
	return r
}

func roundedOrNil(v *float64) *float64 {
	if v == nil {
		return nil
	}
	r := rounded(*v)
	return &r
}

// AddRows adds the rows that a report measured to the file of the report's machine, in dir. known are all rows that the
// bench has.
func AddRows(dir string, known []bench.Row, report *bench.Report, run Run) (path string, err error) {
	return add(dir, report, func(f *File) { f.Rows = merge(known, f.Rows, report.Results, run) })
}

// AddPoints does the same for the points of the picture.
func AddPoints(dir string, known []bench.Row, report *bench.Report, run Run) (path string, err error) {
	return add(dir, report, func(f *File) { f.Points = merge(known, f.Points, report.Results, run) })
}

func add(dir string, report *bench.Report, change func(*File)) (path string, err error) {
	core := report.Machine.Core()
	path = filepath.Join(dir, strings.ReplaceAll(strings.ToLower(core), " ", "-")+".json")
	f, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		f = &File{Schema: 1, Rows: []Figure{}, Points: []Figure{}}
		err = nil
	}
	if err != nil {
		return "", err
	}

	f.Core = core
	f.Machine = report.Machine
	change(f)
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encoding %s: %w", path, err)
	}
	return path, write(path, append(text, '\n'))
}

// merge returns a figure for each of the known rows that has one, in their order.
func merge(known []bench.Row, old []Figure, results []bench.Result, run Run) []Figure {
	merged := []Figure{}
	for _, row := range known {
		before := Find(old, row)
		if now := measured(results, row.Name); now != nil && (!now.Noisy || before == nil || before.Noisy) {
			merged = append(merged, run.figure(*now))
		} else if before != nil {
			merged = append(merged, *before)
		}
	}
	return merged
}

// Find returns the figure of a row, or nil.
func Find(figures []Figure, row bench.Row) *Figure {
	for i, f := range figures {
		if f.Name == row.Name && f.Ref == row.Ref {
			return &figures[i]
		}
	}
	return nil
}

// measured returns the result of a row that has figures, or nil.
func measured(results []bench.Result, name string) *bench.Result {
	for i, r := range results {
		if r.Name == name && r.Ratio != nil {
			return &results[i]
		}
	}
	return nil
}

// Read returns the files in dir, in the order of their names.
func Read(dir string) ([]File, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", dir, err)
	}
	var files []File
	for _, path := range paths {
		f, err := read(path)
		if err != nil {
			return nil, err
		}
		files = append(files, *f)
	}
	return files, nil
}

func read(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the kept figures: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var f File
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("reading the kept figures: %s: %w; git checkout %s brings the last commit's back", path, err, path)
	}
	return &f, nil
}
