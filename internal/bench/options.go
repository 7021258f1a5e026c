package bench

import (
	"log/slog"
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
