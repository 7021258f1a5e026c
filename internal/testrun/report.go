package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
}

// test names a test of a package; name is empty for the package itself.
type test struct{ pkg, name string }

// report collects the events of one run.
type report struct {
	w       io.Writer
	output  map[test][]string // of tests that have not ended
	passed  int
	failed  []test
	skipped map[string][]test // by reason
}

func newReport(w io.Writer) *report {
	return &report{w: w, output: make(map[test][]string), skipped: make(map[string][]test)}
}

// read takes events until the end. A line that is no event is shown.
func (r *report) read(events io.Reader) error {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadString('\n')
		var e event
		if json.Unmarshal([]byte(line), &e) == nil {
			r.take(e)
		} else {
			fmt.Fprint(r.w, line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the output of go test: %w", err)
		}
	}
}

func (r *report) take(e event) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "output":
		r.output[t] = append(r.output[t], e.Output)
		return
	case "build-output":
		fmt.Fprint(r.w, e.Output)
		return
	case "pass", "skip", "fail":
	default:
		return
	}
	lines := r.output[t]
	delete(r.output, t)
	switch {
	case e.Test == "":
		r.end(e, lines)
	case e.Action == "pass":
		r.passed++
	case e.Action == "skip":
		why := reason(lines)
		r.skipped[why] = append(r.skipped[why], t)
	default:
		r.failed = append(r.failed, t)
		r.show(lines)
	}
}

// end shows the line that go test prints for a package, and the output of the tests in the
// middle of which the package failed.
func (r *report) end(e event, lines []string) {
	if e.Action != "fail" {
		lines = lines[max(0, len(lines)-1):]
	}
	for _, t := range slices.SortedFunc(maps.Keys(r.output), func(a, b test) int { return cmp.Compare(a.name, b.name) }) {
		if t.pkg != e.Package {
			continue
		}
		r.failed = append(r.failed, t)
		r.show(r.output[t])
		delete(r.output, t)
	}
	if e.Action == "fail" && !slices.ContainsFunc(r.failed, func(t test) bool { return t.pkg == e.Package }) {
		r.failed = append(r.failed, test{pkg: e.Package}) // it did not build, or ended outside of its tests
	}
	r.show(lines)
}

func (r *report) show(lines []string) {
	for _, line := range lines {
		if !strings.HasPrefix(line, "=== ") {
			fmt.Fprint(r.w, line)
		}
	}
}

var place = regexp.MustCompile(`^\s*[\w.-]+\.go:\d+: `)

// reason is the text that a test gave when it was skipped: the last that has a place.
func reason(lines []string) string {
	for _, line := range slices.Backward(lines) {
		if at := place.FindString(line); at != "" {
			return strings.TrimSpace(line[len(at):])
		}
	}
	return "no reason given"
}

// summary is the text at the end of a run.
func (r *report) summary(name string, took time.Duration, ok bool) string {
	var b strings.Builder
	verdict, skips := "ok", 0
	if !ok {
		verdict = "FAILED"
	}
	for _, tests := range r.skipped {
		skips += len(tests)
	}
	fmt.Fprintf(&b, "\n%s: %s: %d passed, %d failed, %d skipped in %v\n", name, verdict, r.passed, len(r.failed), skips, took.Round(time.Second))
	for _, t := range r.failed {
		fmt.Fprintf(&b, "  failed: %s\n", strings.TrimSpace(t.pkg+" "+t.name))
	}
	for _, why := range slices.Sorted(maps.Keys(r.skipped)) {
		tests := r.skipped[why]
		example := tests[0].name
		if len(tests) > 1 {
			example = fmt.Sprintf("%d tests, such as %s", len(tests), example)
		}
		fmt.Fprintf(&b, "  skipped: %s (%s)\n", why, example)
	}
	return b.String()
}
