package cli

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/selection"
	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/shm"
)

// watchCmd prints the changes of counters as they come into the history ring.
type watchCmd struct {
	outputFlag
	readerFlag
	selection.Options
	History  bool          `help:"Start with the oldest change that the mirror holds, in place of the next one."`
	Interval time.Duration `short:"n" help:"Time between two looks at the ring." default:"100ms"`
	Count    uint64        `help:"End after so many changes. 0: never." default:"0" placeholder:"N"`
	Name     []string      `arg:"" optional:"" complete:"counters" help:"Counters to watch; patterns as of the shell, such as 'w*', too. Default: all."`
}

// Help is shown by watch --help.
func (*watchCmd) Help() string {
	return `Changes are written to the mirror's history every mirror.history_period. If they come faster than they are read, a line has the exact number of lost changes. In parentheses is the difference from the change before, or "-" if that one was not read, as for the first change of each counter.

Examples:

  flowtally watch web

  flowtally watch --history -o json

  flowtally watch --sum-by team --label 'team!=test'`
}

func (c *watchCmd) Run(env *Env) error {
	switch {
	case c.Interval < time.Millisecond:
		return usagef("--interval %s: at least 1ms", c.Interval)
	case c.History && len(c.SumBy) > 0:
		return usagef("--history with --sum-by: a sum needs the values of all its counters, which the history does not begin with; leave one of them out")
	}
	wanted, err := newSelection(c.Name, c.Options)
	if err != nil {
		return err
	}

	m, err := followMirror(c.readerFlag)
	if err != nil {
		return err
	}
	defer m.close()
	first, err := m.read(wanted)
	var unmet *selection.UnmetError
	switch {
	case c.History && errors.As(err, &unmet): // the history may still have changes of a removed counter
		fmt.Fprintf(env.Stderr, "flowtally: %s now\n", format.PrintableLines(unmet.Error()))
	case err != nil:
		return err
	}
	if m.reader.Status().History == 0 {
		return withHint(fmt.Errorf("%s: this mirror keeps no history", m.path), "mirror.history in the configuration, or flowtally top")
	}

	w := c.newWatcher(env, m, wanted, first)
	if err := w.start(c.History); err != nil {
		return err
	}
	tick := time.NewTicker(c.Interval)
	defer tick.Stop()
	for {
		switch err := w.drain(); {
		case m.ends(err):
			return mirrorError(m.path, err)
		case w.left == 0:
			return nil
		}
		if err := w.followMirror(); err != nil {
			return err
		}
		w.tellQuiet()

		select {
		case <-env.Context.Done():
			return nil
		case <-tick.C:
		}
	}
}

// watcher is the state of a watch.
type watcher struct {
	mirror  *mirror
	printer view.ChangePrinter
	talk    io.Writer
	wanted  *selection.Selection
	left    uint64 // changes still to print

	quietAt time.Time // when to tell the user that nothing has changed; zero once told, or after a change
	shown   int       // counters, or sums, at the start

	sums       []view.Counter // the last printed ones; nil to print single changes
	sumsBehind bool           // a counter has changed since then

	cursor          *shm.Cursor
	valueByHandle   map[shm.Handle]shm.Value // the newest value of each counter
	watchedByHandle map[shm.Handle]watched   // from the last look at the catalogue
	lookedUp        map[shm.Handle]bool      // entries read since the ring was last empty
	newest          int64                    // sample time of the newest change seen
	seenInLastFile  int64                    // newest when the file was replaced: a new file repeats earlier changes
	state           string                   // the last printed state of the writer
	buf             [256]shm.Record
}

// newWatcher returns a watcher that continues from the reading first.
func (c *watchCmd) newWatcher(env *Env, m *mirror, wanted *selection.Selection, first *view.Reading) *watcher {
	w := &watcher{
		mirror:  m,
		printer: view.NewChangePrinter(env.Stdout, c.json()),
		talk:    env.Stderr,
		wanted:  wanted,
		left:    c.Count,
		quietAt: time.Now().Add(quietAfter),
		shown:   len(first.Counters),
	}
	if c.Count == 0 {
		w.left = math.MaxUint64
	}
	if wanted.Sums() {
		w.sums = first.Counters
	}
	return w
}

// start opens the ring of the current file, at the next change or at the oldest one in it.
func (w *watcher) start(oldest bool) (err error) {
	if w.cursor, err = w.mirror.reader.History(); err != nil {
		return mirrorError(w.mirror.path, err)
	}
	if oldest {
		w.cursor.Rewind()
	}
	w.valueByHandle = map[shm.Handle]shm.Value{}
	w.watchedByHandle = map[shm.Handle]watched{}
	w.lookedUp = map[shm.Handle]bool{}
	return nil
}

// drain prints the new records in the ring, until it is empty or enough changes are printed.
func (w *watcher) drain() error {
	for w.left > 0 {
		n, lost, err := w.cursor.Next(w.buf[:min(uint64(len(w.buf)), w.left)])
		if err != nil {
			return err
		}
		if lost > 0 {
			clear(w.valueByHandle) // differences across the gap would be wrong
			w.sumsBehind = true
			if w.sums != nil {
				continue // sums are read from the current values, so they miss nothing
			}
			if err := w.printer.Lost(lost); err != nil {
				return err
			}
		}

		for _, rec := range w.buf[:n] {
			if err := w.record(rec); err != nil {
				return err
			}
		}
		if n == 0 {
			clear(w.lookedUp)
			return w.printSums()
		}
	}
	return nil
}

// record prints a change, or remembers it for the sums.
func (w *watcher) record(rec shm.Record) error {
	if rec.Kind != 0 || rec.Value.SampledAt <= w.seenInLastFile {
		return nil
	}
	of, err := w.counter(rec.Handle)
	if lost(err) { // the file is useless now, and this counter's name was never read
		return w.printer.Lost(1)
	}
	if err != nil {
		return err
	}

	w.newest = max(w.newest, rec.Value.SampledAt)
	before, known := w.valueByHandle[rec.Handle]
	w.valueByHandle[rec.Handle] = rec.Value
	if !of.wanted {
		return nil
	}
	w.quietAt = time.Time{}
	if w.sums != nil {
		w.sumsBehind = true
		return nil
	}

	ch := view.Change{Position: rec.Position, Counter: of.counter, Value: rec.Value, Cycle: rec.Cycle}
	if known && rec.Value.Packets >= before.Packets && rec.Value.Bytes >= before.Bytes {
		ch.HasDelta = true
		ch.Since = before.SampledAt
		ch.PacketsDelta = rec.Value.Packets - before.Packets
		ch.BytesDelta = rec.Value.Bytes - before.Bytes
	}
	w.left--
	return w.printer.Change(ch)
}

// watched is a counter with changes in the history.
type watched struct {
	counter view.Counter
	wanted  bool
}

// counter returns the catalogue's entry of a counter, or the last known one of a removed counter. Entries change: they
// become stale, ambiguous or removed. So counter reads an entry again for each batch of changes, but only once per batch.
func (w *watcher) counter(h shm.Handle) (watched, error) {
	last, known := w.watchedByHandle[h]
	if w.lookedUp[h] {
		return last, nil
	}

	e, err := w.mirror.reader.Entry(h)
	gone := errors.Is(err, shm.ErrGone)
	switch {
	case gone && e.Name == "" && known:
		last.counter.Gone = true
	case gone || err == nil:
		last = watched{view.NewCounter(e), w.wanted.Has(e)}
		last.counter.Index = h.Index
		last.counter.Generation = h.Generation
		last.counter.Gone = gone
	case lost(err) && known:
		return last, nil
	default:
		return last, fmt.Errorf("%s: naming counter %d: %w", w.mirror.path, h.Index, err)
	}
	w.watchedByHandle[h] = last
	w.lookedUp[h] = true
	return last, nil
}

// printSums prints the changed sums, if any counter has changed.
func (w *watcher) printSums() error {
	if !w.sumsBehind || w.sums == nil {
		return nil
	}
	r, err := w.mirror.read(w.wanted)
	if r == nil {
		return err
	}

	w.sumsBehind = false
	for _, c := range view.ChangedSums(w.sums, r) {
		if w.left == 0 {
			break
		}
		w.left--
		if err := w.printer.Sum(c); err != nil {
			return err
		}
	}
	w.sums = append([]view.Counter{}, r.Counters...)
	return nil
}

// followMirror switches to a new file of the mirror's name, and prints changes of the writer's state.
func (w *watcher) followMirror() error {
	if w.mirror.replaced() {
		// The writer may have recorded more in the old file before it moved on.
		if err := w.drain(); err != nil && !lost(err) {
			return err
		}
		w.mirror.reopen()
		fmt.Fprintf(w.talk, "flowtally: %s: replaced: reading the new file\n", w.mirror.path)
		w.seenInLastFile = w.newest
		if err := w.start(true); err != nil {
			return err
		}
	}

	writer := view.NewWriter(w.mirror.reader.Status())
	if writer.State != w.state {
		if !writer.Live() || w.state != "" {
			fmt.Fprintf(w.talk, "flowtally: %s: writer %s\n", w.mirror.path, writer)
		}
		w.state = writer.State
	}
	return nil
}

// quietAfter is how long to wait for a change before telling the user that there is none. A change reaches the history
// within mirror.history_period, which is a second by default.
const quietAfter = 3 * time.Second

// tellQuiet says once that nothing has changed yet. Otherwise the user cannot tell an idle watch from a broken one.
func (w *watcher) tellQuiet() {
	if w.quietAt.IsZero() || time.Now().Before(w.quietAt) {
		return
	}
	w.quietAt = time.Time{}

	of := format.Plural(uint64(w.shown), "counter", "counters")
	if w.sums != nil {
		of = format.Plural(uint64(w.shown), "sum", "sums")
	}
	fmt.Fprintf(w.talk, "flowtally: %s: watching %s: nothing has changed yet\n", w.mirror.path, of)
}
