package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// scripted is a Side whose costs follow a script, round after round.
func scripted(costs ...float64) Side {
	i := -1 // the calibration call
	return func(context.Context, int) (float64, error) {
		i++
		return costs[max(i-1, 0)%len(costs)], nil
	}
}

func row(bound float64, s Sides) Row {
	s.N = 1
	return Row{Name: "r", Ref: "floor", Bound: bound, Open: func(context.Context, Env) (*Sides, error) { return &s, nil }}
}

func run(t *testing.T, o Options, rows ...Row) *Report {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs CPU affinity: Linux")
	}
	o.Anywhere = true
	o.Openings = cmp.Or(o.Openings, 1)
	report, err := Run(t.Context(), rows, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Results) != len(rows) {
		t.Fatalf("%d results for %d rows", len(report.Results), len(rows))
	}
	return report
}

func TestRunDividesOursByTheReference(t *testing.T) {
	r := run(t, Options{}, row(2, Sides{Ours: scripted(15), Ref: scripted(10)})).Results[0]
	if *r.Ours != 15 || *r.RefNS != 10 || *r.Ratio != 1.5 || !*r.Pass || r.Rounds != 61 || r.Reason != "" {
		t.Errorf("got %+v", r)
	}
}

func TestRunTakesOffTheBaseOfTheSameRound(t *testing.T) {
	// The base doubles half-way and both sides with it: the costs above it do not.
	r := run(t, Options{Rounds: 8}, row(1, Sides{
		Ours: scripted(13, 13, 13, 13, 23, 23, 23, 23),
		Ref:  scripted(16, 16, 16, 16, 26, 26, 26, 26),
		Base: scripted(10, 10, 10, 10, 20, 20, 20, 20),
	})).Results[0]
	if *r.Ours != 3 || *r.RefNS != 6 || *r.Ratio != 0.5 {
		t.Errorf("got ours %v, ref %v, ratio %v; want 3, 6, 0.5", *r.Ours, *r.RefNS, *r.Ratio)
	}
}

func TestRunInterleavesAndTurnsRound(t *testing.T) {
	var order strings.Builder
	side := func(name string) Side {
		return func(context.Context, int) (float64, error) { order.WriteString(name); return float64(len(name)), nil }
	}
	run(t, Options{Rounds: 7}, row(2, Sides{Ours: side("O"), Ref: side("R"), Base: func(context.Context, int) (float64, error) {
		order.WriteString("b")
		return 0, nil
	}}))
	const calibration = "ORb"
	want := calibration + "ObR" + "RbO" + "ObR" + "RbO" + "ObR" + "RbO" + "ObR"
	if order.String() != want {
		t.Errorf("order %s, want %s", order.String(), want)
	}
}

// The cost of a side is the lower quartile of its turns.
func TestTurnsLeaveCompanyOut(t *testing.T) {
	var order strings.Builder
	side := func(name string, costs ...float64) Side {
		next := scripted(costs...)
		return func(ctx context.Context, n int) (float64, error) { order.WriteString(name); return next(ctx, n) }
	}
	r := run(t, Options{Rounds: 7}, row(2, Sides{Turns: 4, Ours: side("O", 3, 3, 9, 90), Ref: side("R", 2, 40, 2, 2)})).Results[0]
	if want := "OR" + strings.Repeat("ORROORRO"+"ROORROOR", 3) + "ORROORRO"; order.String() != want {
		t.Errorf("order %s, want %s", order.String(), want)
	}
	if r.Ratio == nil || *r.Ratio != 1.5 {
		t.Errorf("got %+v, want 1.5", r)
	}
}

func TestRunRepeatsOnlyNoise(t *testing.T) {
	for _, tt := range []struct {
		name     string
		ours     []float64
		attempts int
		reason   string
	}{
		{"quiet miss is not repeated", []float64{90}, 1, ""},
		{"noise first, quiet then", []float64{10, 90, 10, 90, 10, 90, 10, 20, 20, 20, 20, 20, 20, 20}, 2, ""},
		{"noise for ever", []float64{10, 90}, 3, "noise: spread 1.60 is above 0.10 in the last of 3 attempts"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			calls := 0
			ours := scripted(tt.ours...)
			counted := func(ctx context.Context, n int) (float64, error) { calls++; return ours(ctx, n) }
			r := run(t, Options{Rounds: 7, Attempts: 3}, row(2, Sides{Ours: counted, Ref: scripted(10)})).Results[0]
			if want := (1 + 7) * tt.attempts; calls != want {
				t.Errorf("%d calls, want %d", calls, want)
			}
			if tt.reason == "" {
				if r.Ratio == nil {
					t.Errorf("not measured: %s", r.Reason)
				}
				return
			}
			if !r.Noisy || r.Ratio == nil || r.Pass != nil || *r.Low != 1 || *r.High != 9 ||
				!strings.HasPrefix(r.Reason, "noise: spread") || !strings.HasSuffix(r.Reason, "in the last of 3 attempts"+advice(r.Name)) {
				t.Errorf("got %+v, want the figures of an attempt, no verdict and reason %q", r, tt.reason)
			}
		})
	}
}

func TestRunConfirmsAMissLater(t *testing.T) {
	// The calls of one measurement, then others.
	once := append(slices.Repeat([]float64{30}, 1+7), slices.Repeat([]float64{15}, 100)...)
	noisy := append(slices.Repeat([]float64{30}, 1+7), slices.Repeat([]float64{10, 90}, 100)...)
	for _, tt := range []struct {
		name   string
		ours   []float64
		passes int
		ratio  float64
		fails  bool
	}{
		{"a miss every time", []float64{30}, 4, 3, true},
		{"a phase that passes", once, 2, 1.5, false},
		{"then too noisy to say", noisy, 2, 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opened := 0
			ours := scripted(tt.ours...)
			r := row(2, Sides{Ours: ours, Ref: scripted(10)})
			open := r.Open
			r.Open = func(ctx context.Context, env Env) (*Sides, error) { opened++; return open(ctx, env) }
			report := run(t, Options{Rounds: 7, Attempts: 1, Confirm: 3, Pause: time.Nanosecond}, r)
			got := report.Results[0]
			if opened != tt.passes || got.Ratio == nil || *got.Ratio != tt.ratio {
				t.Errorf("%d measurements, %+v; want %d and ratio %v", opened, got, tt.passes, tt.ratio)
			}
			if missed := report.Missed(true); (len(missed) > 0) != tt.fails {
				t.Errorf("missed: %q", missed)
			}
		})
	}
}

func TestRunDiscardsDisturbedRounds(t *testing.T) {
	i := 0
	flaky := func(context.Context, int) (float64, error) {
		if i++; i%2 == 0 {
			return 1e9, ErrDisturbed
		}
		return 20, nil
	}
	r := run(t, Options{Rounds: 7}, row(3, Sides{Ours: flaky, Ref: scripted(10)})).Results[0]
	if r.Ratio == nil || *r.Ratio != 2 || r.Rounds != 7 || r.Noisy || r.Tried != 7+r.Disturbed || r.Disturbed < 6 {
		t.Errorf("got %+v, want ratio 2 of 7 rounds beside 6 or more that were disturbed", r)
	}
	always := func(context.Context, int) (float64, error) { return 0, ErrDisturbed }
	r = run(t, Options{Rounds: 7}, row(3, Sides{Ours: always, Ref: scripted(10)})).Results[0]
	if r.Ratio != nil || !r.Noisy || r.Disturbed != 21 || r.Tried != 21 || r.Reason != ErrDisturbed.Error()+" in 21 of 21 rounds"+advice("r") {
		t.Errorf("got %+v, want no figures after 21 rounds", r)
	}
}

// TestDisturbedRowGivesTheRoundsThatItHas: with a verdict only where the whole interval is on one side of the bound.
func TestDisturbedRowGivesTheRoundsThatItHas(t *testing.T) {
	// Three of four rounds are disturbed, so an opening ends after 21 rounds with 5, or after 30 with 7.
	mostly := func() Side {
		i := 0
		return func(context.Context, int) (float64, error) {
			if i++; i%4 != 0 {
				return 1e9, ErrDisturbed
			}
			return 20, nil
		}
	}
	for _, tt := range []struct {
		name     string
		rounds   int
		bound    float64
		interval bool
		passes   string
	}{
		{"too few for an interval", 7, 3, false, "no verdict"},
		{"below the bound", 10, 3, true, "true"},
		{"above the bound", 10, 1, true, "false"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			report := run(t, Options{Rounds: tt.rounds}, row(tt.bound, Sides{Ours: mostly(), Ref: scripted(10)}))
			r := report.Results[0]
			if !r.Noisy || r.Ratio == nil || *r.Ratio != 2 || r.Rounds+r.Disturbed != r.Tried || (r.Low != nil) != tt.interval {
				t.Errorf("got %+v, want the ratio 2 of the rounds that were not disturbed", r)
			}
			passes := "no verdict"
			if r.Pass != nil {
				passes = fmt.Sprint(*r.Pass)
			}
			if passes != tt.passes {
				t.Errorf("%s, want %s", passes, tt.passes)
			}
			if missed := report.Missed(true); len(missed) > 0 {
				t.Errorf("a busy machine fails the row: %q", missed)
			}
			if missed := report.Missed(false); (len(missed) == 0) != (tt.passes == "true") {
				t.Errorf("missed %q", missed)
			}
			var b bytes.Buffer
			if err := errors.Join(report.WriteTable(&b), report.WriteJSON(&b)); err != nil || !strings.Contains(b.String(), "rounds were disturbed") {
				t.Errorf("%v: %s", err, b.String())
			}
		})
	}
}

// TestStartUnderLoadIsTriedAgain: a start that the load of the host kept from ending, in Prepare and in Open.
func TestStartUnderLoadIsTriedAgain(t *testing.T) {
	failing := func(times int) func() error {
		return func() error {
			if times--; times >= 0 {
				return fmt.Errorf("starting: no reply in time: %w", ErrDisturbed)
			}
			return nil
		}
	}
	started := func(prepare, open func() error) Row {
		r := row(3, Sides{Ours: scripted(2), Ref: scripted(1)})
		then := r.Open
		r.Prepare = func(context.Context) error { return prepare() }
		r.Open = func(ctx context.Context, env Env) (*Sides, error) {
			if err := open(); err != nil {
				return nil, err
			}
			return then(ctx, env)
		}
		return r
	}
	report := run(t, Options{Rounds: 7, Pause: time.Nanosecond, RowTime: 100 * time.Millisecond},
		started(failing(2), failing(3)),
		started(failing(1<<40), failing(0)),
		started(failing(0), failing(1<<40)))
	if r := report.Results[0]; r.Ratio == nil || r.Noisy || r.FailedStarts != 5 {
		t.Errorf("got %+v, want figures after 5 starts that failed", r)
	}
	for _, r := range report.Results[1:] {
		if r.Ratio != nil || !r.Noisy || r.FailedStarts < 2 || !strings.Contains(r.Reason, "no reply in time") {
			t.Errorf("got %+v, want no figures: no reply in time", r)
		}
	}
	if missed := report.Missed(true); len(missed) > 0 {
		t.Errorf("a busy machine fails a row: %q", missed)
	}
}

func TestRunGoesOnAfterARowThatCannotBeMeasured(t *testing.T) {
	closed := 0
	boom := errors.New("no C compiler")
	report := run(t, Options{Rounds: 7},
		Row{Name: "a", Bound: 1, Open: func(context.Context, Env) (*Sides, error) { return nil, boom }},
		row(1, Sides{Ours: func(context.Context, int) (float64, error) { return 0, boom }, Ref: scripted(1),
			Close: func() error { closed++; return nil }}),
		row(3, Sides{Ours: scripted(2), Ref: scripted(1), Close: func() error { closed++; return nil }}))
	for i := range 2 {
		if r := report.Results[i]; r.Ratio != nil || r.Reason != boom.Error() {
			t.Errorf("row %d: got %+v, want no figures because %v", i, r, boom)
		}
	}
	if r := report.Results[2]; r.Ratio == nil {
		t.Errorf("the row after has no figures either: %s", r.Reason)
	}
	if closed != 2 {
		t.Errorf("%d rows closed, want 2", closed)
	}
}

func TestRunDividesRoundsAmongOpenings(t *testing.T) {
	opened, closed := 0, 0
	r := run(t, Options{Rounds: 9, Openings: 3}, Row{Name: "r", Ref: "floor", Bound: 2, Open: func(context.Context, Env) (*Sides, error) {
		opened++
		cost := []float64{10, 18, 40}[opened-1] // where the memory lies decides
		return &Sides{
			Ours: scripted(cost), Ref: scripted(10), N: 1, MaxSpread: 10, Close: func() error { closed++; return nil },
		}, nil
	}}).Results[0]
	if opened != 3 || closed != 3 {
		t.Errorf("opened %d times, closed %d; want 3", opened, closed)
	}
	if r.Ratio == nil || *r.Ratio != 1.8 || r.Rounds != 9 {
		t.Errorf("got %+v, want the ratio 1.8 of the middle opening and 9 rounds", r)
	}
}

func TestARowSetsItsRoundsAndItsTime(t *testing.T) {
	opened := 0
	late := func(_ context.Context, n int) (float64, error) { time.Sleep(10 * time.Millisecond); return 1, nil }
	open := func(context.Context, Env) (*Sides, error) { opened++; return &Sides{Ours: late, Ref: late, N: 1}, nil }
	r := run(t, Options{Rounds: 1000, Openings: 5, RowTime: time.Millisecond},
		Row{Name: "r", Ref: "floor", Bound: 2, Rounds: 9, Openings: 3, Time: time.Minute, Open: open}).Results[0]
	if opened != 3 || r.Ratio == nil || r.Rounds != 9 {
		t.Errorf("opened %d times: %+v, want 9 rounds in 3 openings, and no reason that it took too long", opened, r)
	}
}

// A core that is never alone disturbs every side but paced ones.
func TestPacedSidesRunInCompany(t *testing.T) {
	for _, paced := range []bool{false, true} {
		s := Sides{Ours: scripted(2), Ref: scripted(1), N: 1, Paced: paced}
		ctx, end := context.WithCancel(t.Context())
		if !paced { // it waits for its core until the context ends
			time.AfterFunc(10*time.Millisecond, end)
		}
		rounds, _, err := (&runner{
			Options: Options{Rounds: 7, Openings: 1},
			still:   &stillness{floor: 1, probe: costs(1000)},
		}).sample(ctx, row(1, s), &tally{}, time.Now().Add(time.Hour))
		end()
		if paced != (err == nil && len(rounds) == 7) || !paced && !errors.Is(err, ErrDisturbed) && !errors.Is(err, context.Canceled) {
			t.Errorf("paced %v: %d rounds, %v", paced, len(rounds), err)
		}
	}
}

func TestCostsBelowTheResolutionAreTheResolution(t *testing.T) {
	for _, tt := range []struct {
		base, ours, ref, resolution float64
		want                        round
	}{
		{10, 15, 12, 0, round{5, 2}},
		{10, 9, 10, 0, round{-1, 0}},
		{16, 21, 19, 1.0 / 8, round{5, 3}},
		{16, 21, 17, 1.0 / 8, round{5, 2}},
		{16, 15, 16, 1.0 / 8, round{2, 2}},
		{0, 3, 2, 1.0 / 8, round{3, 2}},
	} {
		if got := above(tt.base, tt.ours, tt.ref, tt.resolution); got != tt.want {
			t.Errorf("base %v, ours %v, ref %v: got %v, want %v", tt.base, tt.ours, tt.ref, got, tt.want)
		}
	}
}

func TestRowOnACoreThatIsNeverAloneIsNoisyAndHasFigures(t *testing.T) {
	for _, tt := range []struct {
		bound float64
		pass  *bool
	}{{3, new(true)}, {1.5, nil}} {
		synctest.Test(t, func(t *testing.T) {
			probe := func() (int64, error) {
				time.Sleep(100 * time.Millisecond)
				return 1500, nil
			}
			b := row(tt.bound, Sides{Ours: scripted(20), Ref: scripted(10), N: 1})
			r := (&runner{
				Options: Options{Rounds: 9, Openings: 1, Attempts: 1, RowTime: time.Minute},
				still:   &stillness{floor: 1000, probe: probe},
			}).row(t.Context(), b)
			if r.Ratio == nil || *r.Ratio != 2 || !r.Noisy || r.Disturbed != r.Tried || !reflect.DeepEqual(r.Pass, tt.pass) {
				t.Errorf("bound %v: got %+v, want the ratio 2 of disturbed rounds", tt.bound, r)
			}
			if !strings.Contains(r.Reason, "something else used too") {
				t.Errorf("reason %q does not say what the figures are of", r.Reason)
			}
		})
	}
}

func TestRunBoundsARowInTime(t *testing.T) {
	slow := func(ctx context.Context, _ int) (float64, error) {
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
		return 1, nil
	}
	bounded := func(o Options, s Sides) Result {
		t.Helper()
		start := time.Now()
		r := run(t, o, row(1, s)).Results[0]
		if took := time.Since(start); took > o.RowTime+28*time.Second {
			t.Errorf("took %v", took)
		}
		return r
	}
	r := bounded(Options{Rounds: 1000, RowTime: 50 * time.Millisecond}, Sides{Ours: slow, Ref: slow})
	if !r.Noisy || !strings.Contains(r.Reason, "too long") || !strings.HasSuffix(r.Reason, advice(r.Name)) {
		t.Errorf("got %+v, want a noisy row: took too long", r)
	}
	calls := 0
	waits := func(ctx context.Context, _ int) (float64, error) {
		if calls++; calls < 8 {
			return 1, nil
		}
		<-ctx.Done()
		return 0, fmt.Errorf("adding one flow: %w", ctx.Err())
	}
	for limit := time.Second; calls < 8 && limit < 2*time.Minute; limit *= 2 { // until two rounds were done in time
		calls = 0
		r = bounded(Options{Rounds: 7, RowTime: limit}, Sides{Ours: waits, Ref: waits})
	}
	if !strings.HasPrefix(r.Reason, "row took too long: 2 of 7 rounds are done: adding one flow: ") || !strings.HasSuffix(r.Reason, advice(r.Name)) {
		t.Errorf("got %+v, want no figures, with the reason that it took too long", r)
	}
}

func TestTheSecondHalfOfARowsTimeIsForAnOpenVerdict(t *testing.T) {
	for _, tt := range []struct {
		bound float64
		want  time.Duration
	}{{2, 20 * time.Second}, {1, 40 * time.Second}, {0, 40 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			slow := func(context.Context, int) (float64, error) {
				time.Sleep(10 * time.Millisecond)
				return 1, nil
			}
			start := time.Now()
			r := (&runner{
				Options: Options{Rounds: 1_000_000, Openings: 1, Attempts: 1, RowTime: 40 * time.Second},
			}).row(t.Context(), row(tt.bound, Sides{Ours: slow, Ref: slow, N: 1}))
			if took := time.Since(start); took < tt.want || took > tt.want+time.Second {
				t.Errorf("bound %v: it took %v, want %v", tt.bound, took, tt.want)
			}
			if r.Ratio == nil || *r.Ratio != 1 || !r.Noisy || (tt.bound == 2) != (r.Pass != nil) {
				t.Errorf("bound %v: got %+v, want the ratio 1, and a verdict for the bound 2", tt.bound, r)
			}
		})
	}
}

func TestFillMatchesTheRoundTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // sleeps are as long as asked there
		const each, round = 50 * time.Microsecond, 20 * time.Millisecond
		n, err := fill(t.Context(), func(_ context.Context, n int) (float64, error) {
			time.Sleep(time.Duration(n) * each)
			return 1, nil
		}, 0, round)
		if took := time.Duration(n) * each; err != nil || took < round/2 || took > 2*round {
			t.Errorf("fill = %d, %v: %v, want about %v", n, err, took, round)
		}
	})
}

func TestTimedReturnsTheTimeOfOneOperation(t *testing.T) {
	now := int64(1000)
	clock := func() (int64, error) { return now, nil }
	ns, err := Timed(clock, func(n int) { now += int64(7 * n) })(t.Context(), 100)
	if ns != 7 || err != nil {
		t.Errorf("got %v, %v; want 7", ns, err)
	}
	boom := errors.New("no clock")
	if _, err := Timed(func() (int64, error) { return 0, boom }, func(int) {})(t.Context(), 1); !errors.Is(err, boom) {
		t.Errorf("got %v, want %v", err, boom)
	}
}

func TestMissedNamesRowsAboveTheirBound(t *testing.T) {
	mk := func(name string, ratio, low, bound float64) Result {
		return measured(Row{Name: name, Ref: "floor", Bound: bound}, summary{ratio: ratio, low: low, high: ratio + 1, rounds: 7}, tally{})
	}
	report := Report{Results: []Result{
		mk("holds", 1.9, 1.8, 2),
		mk("miss within noise", 2.1, 1.9, 2),
		mk("miss", 3, 2.5, 2),
		mk("no bound", 9, 9, 0),
		unmeasured(Row{Name: "unmeasured", Bound: 2}, "no C compiler"),
		unmeasured(Row{Name: "unmeasured without bound"}, "no C compiler"),
		{Name: "busy", Bound: new(float64), Reason: "noise", Noisy: true},
	}}
	names := func(list []string) (s []string) {
		for _, line := range list {
			name, _, _ := strings.Cut(line, ":")
			s = append(s, name)
		}
		return s
	}
	if got, want := fmt.Sprint(names(report.Missed(false))), "[miss within noise miss unmeasured busy]"; got != want {
		t.Errorf("gate: %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(names(report.Missed(true))), "[miss unmeasured]"; got != want {
		t.Errorf("beyond noise: %s, want %s", got, want)
	}
}

func TestASignalKeepsTheRowsOfBeforeIt(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs CPU affinity: Linux")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var said []string
	sides := Sides{Ours: scripted(2), Ref: scripted(1)}
	rows := []Row{row(0, sides), row(0, sides), row(0, sides)}
	report, err := Run(ctx, rows, Options{Rounds: 7, Openings: 1, Anywhere: true, Each: func(r Result, _ bool) {
		if said = append(said, r.Name); len(said) == 2 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || report == nil || len(report.Results) != 2 || report.Complete || len(said) != 2 {
		t.Errorf("%v; rows %q; report %+v", err, said, report)
	}
}

func TestReportHasFiguresOfMeasuredRowsAlone(t *testing.T) {
	report := Report{Schema: 1, Results: []Result{
		measured(Row{Name: "a", Ref: "floor", Bound: 2}, summary{ours: 3, ref: 2, ratio: 1.5, spread: 0.01, low: 1.4, high: 1.6, rounds: 21}, tally{rounds: 21}),
		unmeasured(Row{Name: "b", Ref: "floor"}, "no C compiler"),
	}}
	var b bytes.Buffer
	if err := report.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Schema  int
		Machine map[string]any
		Results []map[string]any
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	a, none := got.Results[0], got.Results[1]
	for key, want := range map[string]any{"name": "a", "ours_ns": 3.0, "ref": "floor", "ref_ns": 2.0, "ratio": 1.5, "spread": 0.01, "bound": 2.0, "pass": true} {
		if a[key] != want {
			t.Errorf("%s = %v, want %v", key, a[key], want)
		}
	}
	for _, key := range []string{"ours_ns", "ref_ns", "ratio", "spread", "bound", "pass"} {
		if v, ok := none[key]; !ok || v != nil {
			t.Errorf("row without figures: %s = %v (present %t), want null", key, v, ok)
		}
	}
	if none["reason"] != "no C compiler" || got.Schema != 1 || got.Machine == nil {
		t.Errorf("got %s", b.String())
	}
	b.Reset()
	if err := report.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	if out := b.String(); !strings.Contains(out, "3.00 ns") || !strings.Contains(out, "not measured: no C compiler") || strings.Contains(out, "null") || !strings.Contains(out, "ok") {
		t.Errorf("table:\n%s", out)
	}
}

func TestThreadCPUDoesNotCountSleep(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs CLOCK_THREAD_CPUTIME_ID: Linux")
	}
	cpus, err := CPUs()
	if err != nil || len(cpus) == 0 {
		t.Fatalf("CPUs() = %v, %v", cpus, err)
	}
	err = Pinned(cpus[0], func() {
		t0, _ := ThreadCPU()
		time.Sleep(30 * time.Millisecond)
		t1, err := ThreadCPU()
		if err != nil || t1 < t0 || t1-t0 > int64(15*time.Millisecond) {
			t.Errorf("30 ms of sleep cost %d ns of CPU, %v", t1-t0, err)
		}
	})
	if err != nil {
		t.Error(err)
	}
	if err := Pinned(1<<20, func() { t.Error("ran on a CPU that does not exist") }); err == nil {
		t.Error("pinned to a CPU that does not exist")
	}
}
