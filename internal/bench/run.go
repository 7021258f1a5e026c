package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Options of a run. The zero value is the full form.
type Options struct {
	// Rounds per attempt, at least 7. 0 means 61.
	Rounds int
	// Openings of a row in an attempt, among which the rounds are divided. 0
	// means 5. Where memory lies, virtual and physical, changes the cost of a side
	// by up to half and is drawn anew with each.
	Openings int
	// Attempts at most for a row that is noisy. 0 means 5.
	Attempts int
	// MaxSpread above which an attempt is noisy. 0 means 0.10.
	MaxSpread float64
	// RoundTime is how long one side runs in a round. 0 means 2 ms: a core is
	// often shared for milliseconds at a time, and a side that was disturbed is run again.
	RoundTime time.Duration
	// RowTime ends the attempts at a row. The whole run takes at most the number of
	// rows times RowTime. 0 means 40 s.
	RowTime time.Duration
	// Confirm is how many times a row that misses its bound beyond the noise of its
	// rounds is measured again, after all others. A difference between measurements that
	// lie apart is noise too: the row's interval then encloses all of them, and the row
	// counts as not measured when one of them was too noisy. 0: the first stands.
	Confirm int
	// Pause before the first confirmation; it doubles with each. 0 means 2 s.
	Pause time.Duration
	// Peers runs the rows that compare with programs of others. Without it they are not measured, and no gate fails
	// for them.
	Peers bool
	// Anywhere measures on a shared core too. It is for tests that look at no figure.
	Anywhere bool
	// Each is called with each row as soon as it is measured, and again with a row that is measured again. May be nil.
	Each func(r Result, again bool)
	// Logger hears about every attempt. nil discards.
	Logger *slog.Logger
}

// The time of a row on a machine that does something else too. A row that takes longer by itself says so ([Row].Time).
const (
	timeOfRow      = 8 * time.Second
	timeOfShortRow = 2 * time.Second
)

// Estimate returns about how long a run takes.
func Estimate(rows []Row, o Options) (d time.Duration) {
	each := timeOfRow
	if o.Rounds != 0 && o.Rounds < 61 {
		each = timeOfShortRow
	}
	for _, row := range rows {
		if row.Peers == "" || o.Peers {
			d += each
		}
	}
	return d
}

// Short is the form for CI: half a second or less per quiet row, and up to two minutes
// more for rows that miss. Its verdict is [Report.Missed] with beyondNoise.
func Short() Options {
	return Options{Rounds: 21, Openings: 3, Attempts: 3, RowTime: 10 * time.Second, Confirm: 6}
}

func (o Options) withDefaults() Options {
	if o.Rounds == 0 {
		o.Rounds = 61
	}
	o.Rounds = max(o.Rounds, 7)
	if o.Openings == 0 {
		o.Openings = 5
	}
	if o.Attempts == 0 {
		o.Attempts = 5
	}
	if o.MaxSpread == 0 {
		o.MaxSpread = 0.10
	}
	if o.RoundTime == 0 {
		o.RoundTime = 2 * time.Millisecond
	}
	if o.Pause == 0 {
		o.Pause = 2 * time.Second
	}
	if o.RowTime == 0 {
		o.RowTime = 40 * time.Second
	}
	if o.Each == nil {
		o.Each = func(Result, bool) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Run measures rows in order and returns the report. It fails only when nothing can be measured here, or when ctx ends:
// the report then has the rows that were measured before. A row that cannot be measured has no figures in the report,
// and the reason. Not to be called twice at the same time.
func Run(ctx context.Context, rows []Row, o Options) (*Report, error) {
	o = o.withDefaults()
	cpus, err := CPUs()
	if err != nil {
		return nil, err
	}
	// The last CPU: interrupts and other programs favour the first.
	env := Env{CPU: cpus[len(cpus)-1], Peer: -1}
	if len(cpus) > 1 {
		env.Peer = cpus[len(cpus)-2]
	}
	env.Dir, err = os.MkdirTemp("", "flowtally-bench-")
	if err != nil {
		return nil, fmt.Errorf("making a directory for the bench: %w", err)
	}
	defer os.RemoveAll(env.Dir)

	defer release(rows, o.Logger)

	report := &Report{Schema: 1, Machine: machine(env), Results: []Result{}}
	var stopped error
	err = Pinned(env.CPU, func() {
		var still *stillness
		if !o.Anywhere {
			if still, stopped = newStillness(ctx); stopped != nil {
				return
			}
		}
		for _, row := range rows {
			if stopped = ctx.Err(); stopped != nil {
				return
			}
			r := runRow(ctx, row, env, still, o)
			if stopped = ctx.Err(); stopped != nil {
				return // in the middle of the row
			}
			report.Results = append(report.Results, r)
			o.Each(r, false)
		}
		report.Complete = true
		stopped = confirm(ctx, rows, report.Results, env, still, o)
	})
	return report, errors.Join(err, stopped)
}

// release ends the objects that rows have prepared.
func release(rows []Row, log *slog.Logger) {
	for _, row := range rows {
		if row.Release == nil {
			continue
		}
		if err := row.Release(); err != nil {
			log.Warn("row left something behind", "row", row.Name, "err", err)
		}
	}
}

// confirm measures rows that miss again, until no row misses or o.Confirm is used up.
func confirm(ctx context.Context, rows []Row, results []Result, env Env, still *stillness, o Options) error {
	pause := o.Pause
	for range o.Confirm {
		if !slices.ContainsFunc(results, Result.missed) {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause *= 2
		if still != nil {
			if err := still.findFloor(ctx); err != nil {
				return err
			}
		}
		for i, row := range rows {
			if results[i].missed() {
				r := runRow(ctx, row, env, still, o)
				if err := ctx.Err(); err != nil {
					return err
				}
				results[i] = results[i].again(r)
				o.Each(results[i], true)
			}
		}
	}
	return nil
}

// advice ends the reason of a row that a busy machine kept from being measured.
func advice(row string) string {
	return fmt.Sprintf(`; stop other work on this machine (top shows it), or measure the row alone: make bench BENCH_ARGS="--row %s"`, row)
}

// runRow measures until an attempt is quiet enough, or none can be.
func runRow(ctx context.Context, row Row, env Env, still *stillness, o Options) Result {
	if row.Peers != "" && !o.Peers {
		row.Bound = 0 // not asked for, so no verdict either
		return unmeasured(row, "compares with "+row.Peers+": measure it with --peers")
	}
	if row.Prepare != nil {
		if err := row.Prepare(ctx); err != nil {
			return unmeasured(row, err.Error())
		}
	}
	ctx, cancel := context.WithTimeout(ctx, max(o.RowTime, row.Time))
	defer cancel()
	if row.Rounds != 0 {
		o.Rounds = min(o.Rounds, max(row.Rounds, 7))
	}
	o.Openings = cmp.Or(row.Openings, o.Openings)
	// A collection in the middle of a round would be most of it.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	reason := ""
	for attempt := 1; attempt <= o.Attempts; attempt++ {
		rounds, widest, err := sample(ctx, row, env, still, o)
		if err != nil {
			if reason == "" || ctx.Err() == nil {
				reason = err.Error()
			}
			if ctx.Err() != nil { // whichever call the end of the time has ended
				reason = "row took too long: " + reason
			}
			break
		}
		s := summarise(rounds)
		o.Logger.Debug("measured", "row", row.Name, "attempt", attempt, "ours_ns", s.ours, "ref_ns", s.ref,
			"ratio", s.ratio, "spread", s.spread, "low", s.low, "high", s.high, "lost", s.lost)
		switch {
		case s.lost*20 > s.rounds:
			reason = fmt.Sprintf("noise: in %d of %d rounds a side cost no more than the base", s.lost, s.rounds)
		case s.spread > widest && s.open(row.Bound):
			reason = fmt.Sprintf("noise: spread %.2f is above %.2f", s.spread, widest)
		default:
			return measured(row, s)
		}
		reason += fmt.Sprintf(" in the last of %d attempts", attempt)
	}
	if ctx.Err() != nil || strings.HasPrefix(reason, "noise: ") || strings.Contains(reason, ErrDisturbed.Error()) {
		reason += advice(row.Name)
	}
	return unmeasured(row, reason)
}

// sample opens the row several times and takes a share of the rounds each time;
// widest is the spread up to which they are quiet.
func sample(ctx context.Context, row Row, env Env, still *stillness, o Options) (rounds []round, widest float64, err error) {
	share := (o.Rounds + o.Openings - 1) / o.Openings
	for range o.Openings {
		sides, err := row.Open(ctx, env)
		if err != nil {
			return nil, 0, err
		}
		widest = sides.MaxSpread
		runtime.GC()
		quiet := still
		if sides.Paced {
			quiet = nil
		}
		some, err := measure(ctx, sides, env, quiet, share, o.RoundTime)
		if sides.Close != nil {
			if err := sides.Close(); err != nil {
				o.Logger.Warn("row left something behind", "row", row.Name, "err", err)
			}
		}
		if err != nil {
			return nil, 0, err
		}
		rounds = append(rounds, some...)
	}
	if widest == 0 {
		widest = o.MaxSpread
	}
	return rounds, widest, nil
}

// counts is the number of operations per round of each side.
type counts struct{ ours, ref, base int }

// calibrate also warms each side up.
func calibrate(ctx context.Context, s *Sides, d time.Duration) (c counts, err error) {
	for _, side := range []struct {
		f  Side
		to *int
	}{{s.Ours, &c.ours}, {s.Ref, &c.ref}, {s.Base, &c.base}} {
		if side.f == nil {
			continue
		}
		if *side.to, err = fill(ctx, side.f, s.N, d); err != nil {
			return c, err
		}
	}
	return c, nil
}

// fill returns how many operations of f take about d, judged by the wall clock
// so that a side that sleeps is bounded too.
func fill(ctx context.Context, f Side, fixed int, d time.Duration) (int, error) {
	if fixed != 0 {
		_, err := f(ctx, fixed)
		if errors.Is(err, ErrDisturbed) {
			err = nil
		}
		return fixed, err
	}
	const most = 1 << 30
	for n := 1; ; {
		took, err := quickest(ctx, f, n)
		if err != nil {
			return 0, err
		}
		switch {
		case took >= d/2 || n >= most:
			return n, ctx.Err()
		case took < d/64:
			n *= 16
		default:
			n = int(float64(n) * float64(d) / float64(took))
		}
	}
}

// quickest is how long the quicker of two calls takes: threads that have to be
// woken, or a process that took the CPU, are not part of the cost of n operations.
func quickest(ctx context.Context, f Side, n int) (time.Duration, error) {
	least := time.Duration(math.MaxInt64)
	for range 2 {
		start := time.Now()
		if _, err := f(ctx, n); err != nil && !errors.Is(err, ErrDisturbed) {
			return 0, err
		}
		least = min(least, time.Since(start))
	}
	return least, nil
}

// measure runs rounds until there are want undisturbed ones.
func measure(ctx context.Context, s *Sides, env Env, still *stillness, want int, d time.Duration) ([]round, error) {
	n, err := calibrate(ctx, s, d)
	if err != nil {
		return nil, err
	}
	rounds := make([]round, 0, want)
	for try := 0; len(rounds) < want; try++ {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("%d of %d rounds are done, %d were disturbed: %w", len(rounds), want, try-len(rounds), err)
		}
		if try == 3*want {
			return nil, fmt.Errorf("%w in %d of %d rounds", ErrDisturbed, try-len(rounds), try)
		}
		var r round
		var err error
		if s.Apart {
			err = still.apart(ctx, env.Peer)
		}
		if err == nil {
			r, err = runRound(ctx, s, still, n, try%2 == 1)
		}
		switch {
		case err == nil:
			rounds = append(rounds, r)
		case errors.Is(err, ErrDisturbed):
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%d of %d rounds are done: %w", len(rounds), want, err)
		default:
			return nil, err
		}
	}
	return rounds, nil
}

// runRound runs every side, in reverse order every other time: the effects of being first or
// last fall on both sides alike.
func runRound(ctx context.Context, s *Sides, still *stillness, n counts, reverse bool) (round, error) {
	run := func(f Side, n int) func() (float64, error) {
		return func() (float64, error) {
			if f == nil {
				return 0, nil
			}
			return still.run(ctx, f, n)
		}
	}
	sides := []func() (float64, error){run(s.Ours, n.ours), run(s.Base, n.base), run(s.Ref, n.ref)}
	if reverse {
		slices.Reverse(sides)
	}
	costs, err := InTurns(max(s.Turns, 1), sides...)
	if err != nil {
		return round{}, err
	}
	if reverse {
		slices.Reverse(costs)
	}
	return round{costs[0] - costs[1], costs[2] - costs[1]}, nil
}

// InTurns runs each side turns times, one after the other, in an order that reverses from one turn to the next. It
// returns the lower quartile of each side's costs: company on the core comes and goes within milliseconds, and makes a
// side dearer, never cheaper.
func InTurns(turns int, sides ...func() (float64, error)) ([]float64, error) {
	all := make([][]float64, len(sides))
	for turn := range turns {
		for i := range sides {
			if turn%2 == 1 {
				i = len(sides) - 1 - i
			}
			ns, err := sides[i]()
			if err != nil {
				return nil, err
			}
			all[i] = append(all[i], ns)
		}
	}
	costs := make([]float64, len(sides))
	for i := range all {
		costs[i] = quantile(all[i], 0.25)
	}
	return costs, nil
}
