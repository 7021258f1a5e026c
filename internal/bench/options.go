package bench

import (
	"log/slog"
	"time"
)

// Options of a run. The zero value is the full form.
type Options struct {
	// Rounds per attempt, at least 7. 0 means 61.
	Rounds int
	// Openings of a row in an attempt, which share its rounds. 0 means 5. Each draws anew where memory lies, virtual
	// and physical: that changes the cost of a side by up to half.
	Openings int
	// Attempts at most for a row that is noisy. 0 means 5.
	Attempts int
	// MaxSpread above which an attempt is noisy. 0 means 0.10.
	MaxSpread float64
	// RoundTime is how long one side runs in a round. 0 means 2 ms: others share a core for milliseconds at a time,
	// and a side that was disturbed runs again.
	RoundTime time.Duration
	// RowTime ends the attempts at a row, unless [Row].Time is longer. 0 means 40 s.
	RowTime time.Duration
	// Confirm is how many times a row is measured again, after all others, while it misses its bound beyond the noise
	// of its rounds. A difference between measurements that lie apart is noise too: the row's interval then encloses
	// all of them, and the gate forgives the row when the last of them was noisy. 0: the first stands.
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

// fullRounds are the rounds of an attempt of the full form.
const fullRounds = 61

// Estimate returns about how long a run takes, at the same time for each row. It does not know that rows about whole
// sets of flows, and about many interfaces, take minutes.
func Estimate(rows []Row, o Options) (d time.Duration) {
	each := 8 * time.Second
	if o.Rounds != 0 && o.Rounds < fullRounds {
		each = 2 * time.Second
	}
	for _, row := range rows {
		if row.Peers == "" || o.Peers {
			d += each
		}
	}
	return d
}

// Short is the form for CI: half a second or less per quiet row, and up to two minutes more for rows that miss. Its
// verdict is [Report.Missed] with beyondNoise.
func Short() Options {
	return Options{
		Rounds:   21,
		Openings: 3,
		Attempts: 3,
		RowTime:  10 * time.Second,
		Confirm:  6,
	}
}

func (o Options) withDefaults() Options {
	if o.Rounds == 0 {
		o.Rounds = fullRounds
	}
	o.Rounds = max(o.Rounds, leastRounds)
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
