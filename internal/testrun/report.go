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
	Elapsed                       float64 // seconds, at the end of a test
}

// test names a test of a package; name is empty for the package itself.
type test struct{ pkg, name string }

func (t test) String() string { return strings.TrimSpace(t.pkg + " " + t.name) }

// top returns the test that a subtest is part of, or the test itself.
func (t test) top() test {
	name, _, _ := strings.Cut(t.name, "/")
	return test{t.pkg, name}
}

// timed is a test with the seconds that it took.
type timed struct {
	test
	seconds float64
}

// report collects the events of one run.
type report struct {
	w       io.Writer
	output  map[test][]string // of tests that have not ended
	passed  map[test]bool
	failed  []*failure
	skipped map[string][]test // by reason
	times   []timed
	repeats []*failure // the tests that runAgain considered

	// failedPackages has each package that failed. The value tells whether the failure of its tests is all that is wrong:
	// it was built, it ran every test to the end, and no detector of races reported anything.
	failedPackages map[string]bool
}

func newReport(w io.Writer) *report {
	return &report{
		w:              w,
		output:         make(map[test][]string),
		passed:         make(map[test]bool),
		skipped:        make(map[string][]test),
		failedPackages: make(map[string]bool),
	}
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
	if e.Test != "" && t == t.top() {
		r.times = append(r.times, timed{t, e.Elapsed})
	}
	switch {
	case e.Test == "":
		r.end(e, lines)
	case e.Action == "pass":
		r.passed[t] = true
	case e.Action == "skip":
		why := reason(lines)
		r.skipped[why] = append(r.skipped[why], t)
	default:
		r.failed = append(r.failed, &failure{test: t, output: lines})
		r.show(lines)
	}
}

// end shows the line that go test prints for a package, and the output of the tests in the
// middle of which the package failed.
func (r *report) end(e event, lines []string) {
	if e.Action == "fail" {
		r.failedPackages[e.Package] = slices.Contains(lines, "FAIL\n") && !r.reportedByDetector(e.Package, lines)
	} else {
		lines = lines[max(0, len(lines)-1):]
	}
	for _, t := range slices.SortedFunc(maps.Keys(r.output), func(a, b test) int { return cmp.Compare(a.name, b.name) }) {
		if t.pkg != e.Package {
			continue
		}
		r.failed = append(r.failed, &failure{test: t, output: r.output[t]})
		r.show(r.output[t])
		delete(r.output, t)
	}
	if e.Action == "fail" && !slices.ContainsFunc(r.failed, func(f *failure) bool { return f.pkg == e.Package }) {
		// It did not build, or ended outside of its tests.
		r.failed = append(r.failed, &failure{test: test{pkg: e.Package}})
		r.failedPackages[e.Package] = false
	}
	r.show(lines)
}

// detector is the first line of a report of the race detector, or of a sanitizer of C.
var detector = regexp.MustCompile(`WARNING: DATA RACE|(ERROR|WARNING): \w+Sanitizer|runtime error: `)

func (r *report) reportedByDetector(pkg string, lines []string) bool {
	for _, f := range r.failed {
		if f.pkg == pkg && slices.ContainsFunc(f.output, detector.MatchString) {
			return true
		}
	}
	return slices.ContainsFunc(lines, detector.MatchString)
}

// doubtful returns the failed tests that may be run again, a test with failed subtests once, with the output of all.
// Whether they have real time is not asked here.
func (r *report) doubtful() (all []*failure) {
	byTest := make(map[test]*failure)
	for _, f := range r.failed {
		if !r.failedPackages[f.pkg] {
			continue
		}
		top := byTest[f.top()]
		if top == nil {
			top = &failure{test: f.top()}
			byTest[f.top()] = top
			all = append(all, top)
		}
		top.output = append(top.output, f.output...)
	}
	return all
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

// forgiven reports whether unsteady tests are all that failed.
func (r *report) forgiven() bool {
	for _, onlyTests := range r.failedPackages {
		if !onlyTests {
			return false
		}
	}
	return len(r.failed) > 0 && !slices.ContainsFunc(r.failed, func(f *failure) bool { return !r.isUnsteady(f.test) })
}

// isUnsteady reports whether a test, or the test that it is part of, passed when it was run again.
func (r *report) isUnsteady(t test) bool {
	return slices.ContainsFunc(r.repeats, func(f *failure) bool { return f.unsteady && f.test == t.top() })
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

	failed := r.failedForGood()
	unsteady := r.unsteady()
	fmt.Fprintf(&b, "\n%s: %s: %d passed, %d failed, ", name, verdict, len(r.passed), len(failed))
	if len(unsteady) > 0 {
		fmt.Fprintf(&b, "%d unsteady, ", len(unsteady))
	}
	fmt.Fprintf(&b, "%d skipped in %v\n", skips, took.Round(time.Second))
	for _, f := range failed {
		fmt.Fprintf(&b, "  failed: %s\n", f)
	}
	for _, f := range unsteady {
		fmt.Fprintf(&b, "  unsteady: %s failed, and passed alone\n", f)
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

// failedForGood returns the failed tests without the unsteady ones.
func (r *report) failedForGood() []*failure {
	return slices.DeleteFunc(slices.Clone(r.failed), func(f *failure) bool { return r.isUnsteady(f.test) })
}

// unsteady returns the tests that failed, and passed when they were run again.
func (r *report) unsteady() (all []*failure) {
	for _, f := range r.repeats {
		if f.unsteady {
			all = append(all, f)
		}
	}
	return all
}

// failureList is this run's part of the list at the end of make test. Each failed test has an entry with its name, whether it is
// unsteady, and its message.
func (r *report) failureList(name string) string {
	var b strings.Builder
	list := func(all []*failure, how string) {
		for _, f := range all {
			fmt.Fprintf(&b, "  %s: %s %s\n", name, f, how)
			for _, line := range f.message() {
				fmt.Fprintf(&b, "      %s\n", line)
			}
		}
	}
	list(r.failedForGood(), "failed")
	list(r.unsteady(), "is unsteady")
	return b.String()
}

// timeList has a line for each test that is no subtest, with its seconds first.
func (r *report) timeList(name string) string {
	var b strings.Builder
	for _, t := range r.times {
		fmt.Fprintf(&b, "%.2f\t%s\t%s\t%s\n", t.seconds, name, t.pkg, t.name)
	}
	return b.String()
}
