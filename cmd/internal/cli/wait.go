package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/selection"
	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/shm"
)

// waitCmd sleeps until a counter has counted enough.
type waitCmd struct {
	outputFlag
	readerFlag
	AtLeast *uint64       `help:"Wait for so many packets, or completions. Left out: for any change." placeholder:"N"`
	Timeout time.Duration `short:"t" help:"Give up after so long. 0: never." default:"0" placeholder:"D"`
	Name    string        `arg:"" complete:"counters" help:"The counter to wait for."`
}

// Help is shown by wait --help.
func (*waitCmd) Help() string {
	return `Ends with 0 when the counter has reached the number, and prints it; with 1 at the timeout, at a signal, when the counter is removed, when the writer is gone, and when operations of a completion counter end in error meanwhile. Members of the group mirror.wait_group are woken at the end of a poll cycle; other processes poll once per cycle.

Examples:

  flowtally wait web --at-least 1000000

  flowtally wait near-sent --at-least 100000 --timeout 30s -o json`
}

// Run returns nil only if the number was reached, because a script goes on after it.
func (c *waitCmd) Run(env *Env) error {
	if c.Timeout < 0 {
		return usagef("--timeout %s: not below 0", c.Timeout)
	}
	m, err := followMirror(c.readerFlag)
	if err != nil {
		return err
	}
	defer m.close()

	ctx := env.Context
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
	}
	w := &waiter{mirror: m, cmd: c, talk: env.Stderr}
	err = w.wait(ctx)
	m.reopen() // errors and output must name the file of the last value

	switch {
	case err == nil:
		return w.print(env.Stdout)
	case errors.Is(err, context.DeadlineExceeded):
		return withHint(fmt.Errorf("%s: %q: %s in vain for %s: it has %s", m.path, c.Name, w.aim(), c.Timeout, w.has()), "a longer --timeout; flowtally get shows how old the value is")
	case errors.Is(err, context.Canceled):
		return withHint(fmt.Errorf("%s: %q: %s until a signal: it has %s", m.path, c.Name, w.aim(), w.has()), "AGAIN # goes on")
	case errors.Is(err, shm.ErrCompletion):
		return withHint(fmt.Errorf("%s: %q: %s: %w: it has %s", m.path, c.Name, w.aim(), err, w.has()), "flowtally queue-pairs list # has the reason")
	}
	return fmt.Errorf("%s: %q: %s: %w", m.path, c.Name, w.aim(), err)
}

// waiter is the state of a wait.
type waiter struct {
	mirror *mirror
	cmd    *waitCmd
	talk   io.Writer
	entry  shm.Entry
	last   observed
	first  *observed // the base for changes and errors; nil before the first read
}

// observed is one reading of the counter.
type observed struct {
	value shm.Value
	words bool // read from a device's words, rather than published
}

// see records a value.
func (w *waiter) see(v shm.Value, words bool) {
	w.last = observed{v, words}
	if w.first == nil {
		w.first = &observed{v, words}
	}
}

// wait waits on the device's words as long as a device writes them, and then on published values.
func (w *waiter) wait(ctx context.Context) error {
	counter, err := w.mirror.in.Counter(w.cmd.Name)
	if err != nil {
		return w.unknown(err)
	}
	if w.describe() {
		if over, err := w.waitForDevice(ctx, w.entry.Handle); over {
			return err
		}
	}
	w.readFirst(counter)
	return w.waitForPublished(ctx, counter)
}

// unknown adds a similar name of a counter to the error for an unknown name.
func (w *waiter) unknown(err error) error {
	if !errors.Is(err, shm.ErrNotFound) {
		return err
	}
	entries, entriesErr := w.mirror.reader.Entries()
	if entriesErr != nil {
		return err
	}
	return selection.UnknownName(w.mirror.path, w.cmd.Name, entries)
}

// describe reads the counter's entry in the catalogue. It returns false if there is none now.
func (w *waiter) describe() bool {
	found, err := w.mirror.reader.Find(w.cmd.Name)
	if err != nil || len(found) != 1 {
		return false
	}
	w.entry = found[0]
	return true
}

// readFirst reads the value before the first sleep. It prints a message if the writer cannot wake this process. It drops
// an error of reading, because the wait itself will return it.
func (w *waiter) readFirst(counter *shm.Counter) {
	var v shm.Value
	_ = shm.Guard(func() (err error) { v, err = counter.Load(); return err })
	w.see(v, false)

	if n := w.cmd.AtLeast; n != nil && v.SampledAt != 0 && v.Packets >= *n {
		return // there will be no sleep
	}
	if why := w.mirror.reader.Wakeable(); why != nil {
		fmt.Fprintf(w.talk, "flowtally: %s: looking once per poll cycle, because the writer cannot wake this process: %v\n", w.mirror.path, format.PrintableLines(why.Error()))
	}
}

// waitForPublished waits for published values. If the first value came from the device's words, the published one may be
// older. So a lower value is not a change, and errors up to the first value's are not new.
func (w *waiter) waitForPublished(ctx context.Context, counter *shm.Counter) error {
	first := w.first.value
	for since := first; ; since = w.last.value {
		var v shm.Value
		var err error
		if w.cmd.AtLeast == nil {
			v, err = counter.WaitChange(ctx, since)
		} else {
			v, err = counter.Wait(ctx, *w.cmd.AtLeast)
		}
		w.see(v, false)

		noNewErrors := w.first.words && v.Bytes <= first.Bytes
		noNewPackets := v.Packets <= first.Packets
		switch {
		case noNewErrors && errors.Is(err, shm.ErrCompletion):
		case noNewErrors && noNewPackets && err == nil:
		default:
			return err
		}
	}
}

// aim describes the condition of the wait.
func (w *waiter) aim() string {
	if w.cmd.AtLeast == nil {
		return "waiting for a change"
	}
	first, _ := w.units()
	return fmt.Sprintf("waiting for %s %s", format.Count(*w.cmd.AtLeast), first)
}

// has describes the last value.
func (w *waiter) has() string {
	v := w.last.value
	if v.SampledAt == 0 {
		return "no value yet"
	}
	first, second := w.units()
	return fmt.Sprintf("%s %s and %s %s", format.Count(v.Packets), first, format.Count(v.Bytes), second)
}

func (w *waiter) units() (first, second string) {
	if w.entry.Kind == shm.KindCompletion {
		return "completions", "errors"
	}
	return "packets", "bytes"
}

// print prints the counter as get does, with the value that ended the wait.
func (w *waiter) print(out io.Writer) error {
	w.describe()
	c := view.NewCounter(w.entry)
	c.Show(w.last.value, w.last.words)
	r := &view.Reading{
		Path:     w.mirror.path,
		Now:      shm.Now(),
		Zero:     view.MonotonicZero(),
		Writer:   view.NewWriter(w.mirror.reader.Status()),
		Counters: []view.Counter{c},
	}

	if w.cmd.json() {
		return format.JSON(out, view.ToJSON(r))
	}
	_, err := io.WriteString(out, view.Get(r))
	return err
}
