package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestOnlyFailedTestsOfAWholeRunAreRunAgain reads recorded runs of go test -json, one for each way to fail.
func TestOnlyFailedTestsOfAWholeRunAreRunAgain(t *testing.T) {
	for _, tt := range []struct {
		recording string
		want      []string
	}{
		{"luck", []string{"m/luck TestLate", "m/luck TestLast"}}, // and neither subtest
		{"build", nil},
		{"vet", nil},
		{"panics", nil},
		{"timeout", nil},
		{"exits", nil}, // os.Exit in a test: others had failed before it
		{"main", nil},  // TestMain fails after its tests passed
		{"race", nil},
	} {
		t.Run(tt.recording, func(t *testing.T) {
			r := readRecording(t, tt.recording)
			var got []string
			for _, f := range r.doubtful() {
				got = append(got, f.String())
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
			if r.forgiven() {
				t.Error("a run is forgiven before any test was run again")
			}
		})
	}
}

// TestRunIsForgivenWhenEachFailedTestIsUnsteady marks the failed tests of the recording one after the other.
func TestRunIsForgivenWhenEachFailedTestIsUnsteady(t *testing.T) {
	r := readRecording(t, "luck")
	r.repeats = r.doubtful()
	r.repeats[0].unsteady = true
	if r.forgiven() {
		t.Error("forgiven although m/luck TestLast failed twice")
	}
	r.repeats[1].unsteady = true
	if !r.forgiven() {
		t.Error("not forgiven although each failed test passed alone")
	}

	if d := cmp.Diff(`
lane: ok: 2 passed, 0 failed, 2 unsteady, 0 skipped in 1s
  unsteady: m/luck TestLate failed, and passed alone
  unsteady: m/luck TestLast failed, and passed alone
`, r.summary("lane", time.Second, true)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(`  lane: m/luck TestLate is unsteady
      a_test.go:4: 3 packets, want 4
      a_test.go:4: FLOWTALLY_SEED=7
  lane: m/luck TestLast is unsteady
      a_test.go:5: no cycle in 1s
`, r.failureList("lane")); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"FLOWTALLY_SEED=7"}, r.repeats[0].seedEnv()); d != "" {
		t.Error(d)
	}

	// A second package that did not build is not forgiven with the first.
	r.take(event{Action: "output", Package: "m/build", Output: "FAIL\tm/build [build failed]\n"})
	r.take(event{Action: "fail", Package: "m/build"})
	if r.forgiven() {
		t.Error("forgiven although a package did not build")
	}
}

func readRecording(t *testing.T, name string) *report {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := newReport(new(strings.Builder))
	if err := r.read(f); err != nil {
		t.Fatal(err)
	}
	if len(r.failed) == 0 {
		t.Fatal("nothing failed in the recording")
	}
	return r
}

func TestRepeatHasTheFlagsAndTheSeedsOfTheRun(t *testing.T) {
	f := &failure{test: test{"m/p", "TestX"}, output: []string{
		"    x_test.go:3: FLOWTALLY_SEED=1\n",
		"    x_test.go:3: FLOWTALLY_SEED=22\n",
		"        To reproduce, specify -run=\"TestX\" -rapid.failfile=\"testdata/x.fail\" (or -rapid.seed=333)\n",
	}}
	args := []string{"-count=1", "-timeout=30m", "-run=Test", "-race", "-exec=.ci/apart", "./...", "./shm"}
	want := []string{"-timeout=30m", "-race", "-exec=.ci/apart", "-count=1", "-run=^TestX$", "m/p", "-rapid.seed=333"}
	if d := cmp.Diff(want, repeatArgs(flagsOf(args), f)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"FLOWTALLY_SEED=22"}, f.seedEnv()); d != "" {
		t.Error(d)
	}
}

// luckyModule has tests that keep in files whether they ran before, so that they fail once or twice.
var luckyModule = map[string]string{
	"go.mod": "module m\n\ngo 1.26\n",

	"internal/lab/lab.go":     "package lab\n\nimport \"time\"\n\nfunc Eventually() { time.Sleep(time.Microsecond) }\n",
	"internal/lab/only/of.go": "package only\n\nimport \"time\"\n\nconst Numbers = time.Second\n",

	"lucky/lucky_test.go": `package lucky

import (
	"os"
	"testing"
	"time"

	"m/internal/lab"
	"m/internal/lab/only"
)

// failures makes a test fail in its first runs.
func failures(t *testing.T, most int) {
	t.Helper()
	runs, _ := os.ReadFile(t.Name())
	os.WriteFile(t.Name(), append(runs, '.'), 0o644)
	if len(runs) < most {
		t.Errorf("run %d of %s", len(runs)+1, t.Name())
	}
}

func TestPasses(t *testing.T) { time.Sleep(1) }

func TestFailsOnce(t *testing.T) {
	time.Sleep(time.Microsecond)
	failures(t, 1)
}

func TestFailsTwice(t *testing.T) {
	time.Sleep(time.Microsecond)
	failures(t, 2)
}

func TestWaitsThroughAHelper(t *testing.T) {
	wait()
	failures(t, 1)
}

func wait() { lab.Eventually() }

func TestPureFailsOnce(t *testing.T) {
	_ = time.Duration(3) * only.Numbers
	failures(t, 1)
}
`,
}

// TestFailedTestsRunOnceMore runs go test over a small module.
func TestFailedTestsRunOnceMore(t *testing.T) {
	for _, tt := range []struct {
		name, pattern string
		code          int
		runs          map[string]int // of the tests that count them
		shown         string
		failures      string
	}{
		{
			name: "all pass", pattern: "TestPasses",
			shown: "lane: ok: 1 passed, 0 failed, 0 skipped",
		},
		{
			name: "fails once", pattern: "TestFailsOnce|TestPasses",
			runs:  map[string]int{"TestFailsOnce": 2},
			shown: "lane: ok: 1 passed, 0 failed, 1 unsteady, 0 skipped",
			failures: `  lane: m/lucky TestFailsOnce is unsteady
      lucky_test.go:26: run 1 of TestFailsOnce
`,
		},
		{
			name: "fails once, and waits in a helper", pattern: "TestWaitsThroughAHelper",
			runs:  map[string]int{"TestWaitsThroughAHelper": 2},
			shown: "has real time (lab.Eventually): it is run once more, alone",
			failures: `  lane: m/lucky TestWaitsThroughAHelper is unsteady
      lucky_test.go:36: run 1 of TestWaitsThroughAHelper
`,
		},
		{
			name: "fails twice", pattern: "TestFailsTwice", code: 1,
			runs:  map[string]int{"TestFailsTwice": 2},
			shown: "lane: FAILED: 0 passed, 1 failed, 0 skipped",
			failures: `  lane: m/lucky TestFailsTwice failed
      lucky_test.go:31: run 1 of TestFailsTwice
`,
		},
		{
			name: "has no real time", pattern: "TestPureFailsOnce", code: 1,
			runs:  map[string]int{"TestPureFailsOnce": 1},
			shown: "m/lucky TestPureFailsOnce has no real time: it is not run again",
			failures: `  lane: m/lucky TestPureFailsOnce failed
      lucky_test.go:43: run 1 of TestPureFailsOnce
`,
		},
		{
			name: "one of two has no real time", pattern: "TestPureFailsOnce|TestFailsOnce", code: 1,
			runs:  map[string]int{"TestPureFailsOnce": 1, "TestFailsOnce": 2},
			shown: "lane: FAILED: 0 passed, 1 failed, 1 unsteady, 0 skipped",
			failures: `  lane: m/lucky TestPureFailsOnce failed
      lucky_test.go:43: run 1 of TestPureFailsOnce
  lane: m/lucky TestFailsOnce is unsteady
      lucky_test.go:26: run 1 of TestFailsOnce
`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, text string) string {
				path := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
				return path
			}
			for name, text := range luckyModule {
				write(name, text)
			}
			to := files{summary: write("summary", ""), failures: write("failures", ""), times: write("times", "")}
			var shown strings.Builder
			s := suite{command: "go", dir: dir, w: &shown}
			code, err := s.runAll("lane", []string{"-vet=off", "-run=" + tt.pattern, "./..."}, to)
			if err != nil || code != tt.code {
				t.Errorf("exit status %d, %v; want %d", code, err, tt.code)
			}

			if !strings.Contains(shown.String(), tt.shown) {
				t.Errorf("the output lacks %q:\n%s", tt.shown, shown.String())
			}
			if d := cmp.Diff(tt.failures, read(t, to.failures)); d != "" {
				t.Error(d)
			}
			for name, want := range tt.runs {
				if got := len(read(t, filepath.Join(dir, "lucky", name))); got != want {
					t.Errorf("%s ran %d times, want %d", name, got, want)
				}
			}
			if summary := read(t, to.summary); !strings.HasSuffix(shown.String(), summary) || summary == "" {
				t.Errorf("the summary in the file is not what was shown: %q", summary)
			}
			if times := read(t, to.times); !strings.Contains(times, "\tlane\tm/lucky\tTest") {
				t.Errorf("the file of times: %q", times)
			}
		})
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRealTimeIsFoundInTheSources asks for tests of this repository, whose nature is plain.
func TestRealTimeIsFoundInTheSources(t *testing.T) {
	s := suite{command: "go", dir: ".", w: new(strings.Builder)}
	const module = "github.com/flowtally/flowtally/"
	for _, tt := range []struct {
		pkg, test string
		real      bool
	}{
		{"internal/lab/e2e", "TestKillsInTrafficLoseNoPacket", true},
		{"shm", "TestWaitEndsWithTheReasonOfItsEnd", true},
		{"plugin", "TestProcessConforms", true},
		{"dataplane/engine/overlap", "TestIndexFindsEveryOverlap", false},
		{"configs", "TestEachMistakeHasItsGoldenText", false},
		{"ibv/flexio", "TestCompressedRingEqualsPlain", false}, // its seed is logged, and repeated
		{"internal/memorder", "TestProtocolsFailWithoutAnyOneBarrier", false},
	} {
		read, err := s.readTests(module+tt.pkg, nil)
		if err != nil {
			t.Fatal(err)
		}
		if read.used[tt.test] == nil {
			t.Fatalf("%s has no %s", tt.pkg, tt.test)
		}
		if why := read.realTime(tt.test); (why != "") != tt.real {
			t.Errorf("%s %s: real time %q, want any: %v", tt.pkg, tt.test, why, tt.real)
		}
	}
}
