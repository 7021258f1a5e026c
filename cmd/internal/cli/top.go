package cli

import (
	"errors"
	"io"
	"slices"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/selection"
	"github.com/flowtally/flowtally/cmd/internal/top"
	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/shm"
)

// topCmd shows rates and totals until a signal.
type topCmd struct {
	outputFlag
	readerFlag
	selection.Options
	Interval time.Duration `short:"n" help:"Time between two looks." default:"1s"`
	Count    int           `help:"End after so many looks. 0: never." default:"0" placeholder:"N"`
	Sort     string        `help:"Order: ${enum}." enum:"name,rate,bits,byte-rate,trend,packets,bytes,age,source,note" default:"name"`
	Reverse  bool          `help:"Reverse the order."`
	Name     []string      `arg:"" optional:"" complete:"counters" help:"Counters to show; patterns as of the shell, such as 'w*', too. Default: all."`
}

// Help is shown by top --help.
func (*topCmd) Help() string {
	return `A rate is the count between two samples, divided by the time between them; "-" where no new sample came. On a terminal the table is live: ? lists the keys, / filters, > and < change the order, enter shows all of one counter, space pauses, q quits. It waits for a mirror that does not exist yet. Where standard output is no terminal, tables are printed one after the other; with -o json one object for each look. NO_COLOR takes the colors out.

Examples:

  flowtally top --sort rate

  flowtally top --interval 100ms --sort bits 'tenant-*'

  flowtally top -o json --count 2

  flowtally top --count 2 --interval 5s web dns`
}

func (c *topCmd) Run(env *Env) error {
	if c.Interval < 10*time.Millisecond {
		return usagef("--interval %s: at least 10ms", c.Interval)
	}
	wanted, err := newSelection(c.Name, c.Options)
	if err != nil {
		return err
	}
	if env.TTY && !c.json() {
		return c.onTerminal(env, wanted)
	}
	return c.print(env, wanted)
}

// onTerminal shows the live table.
func (c *topCmd) onTerminal(env *Env, wanted *selection.Selection) error {
	column, _ := top.ParseColumn(c.Sort) // the parser has checked it against the enum
	o := top.Options{
		Open:     func() (*shm.Instance, error) { return openFollowed(c.readerFlag) },
		Path:     c.writtenPath(),
		Select:   wanted.Has,
		Interval: c.Interval,
		Count:    c.Count,
		Sort:     column,
		Reverse:  c.Reverse,
		Input:    env.Stdin,
		Output:   env.Stdout,
	}
	if wanted.Sums() {
		o.Sum = wanted
	}
	return top.Run(env.Context, o)
}

// print prints a table, or a line of JSON, for each look.
func (c *topCmd) print(env *Env, wanted *selection.Selection) error {
	m, err := followMirror(c.readerFlag)
	if err != nil {
		return err
	}
	defer m.close()
	r, err := m.read(wanted)
	if err != nil {
		return err
	}

	tick := time.NewTicker(c.Interval)
	defer tick.Stop()
	for n := 1; ; n++ {
		view.Sort(r.Counters, c.Sort)
		if c.Reverse {
			slices.Reverse(r.Counters)
		}
		if err := c.printLook(env.Stdout, r, n == 1); err != nil {
			return err
		}
		if c.Count > 0 && n >= c.Count {
			return nil
		}

		select {
		case <-env.Context.Done():
			return nil
		case <-tick.C:
		}
		if r, err = nextLook(m, wanted, r); err != nil {
			return err
		}
	}
}

// nextLook reads the mirror and computes the rates since before. If a new file has taken the mirror's name, it reads that
// one. While the file is unreadable, it returns the values of before again.
func nextLook(m *mirror, wanted *selection.Selection, before *view.Reading) (*view.Reading, error) {
	m.reopen()
	r, err := m.read(wanted)
	var unmet *selection.UnmetError
	switch {
	case err == nil, errors.As(err, &unmet): // a named counter may come and go, and the table shows it
	case m.ends(err):
		return nil, mirrorError(m.path, err)
	default:
		r = before.Again(view.NewWriter(m.reader.Status()))
	}
	view.Rates(before, r)
	return r, nil
}

// printLook prints one look, with a blank line between two tables.
func (c *topCmd) printLook(out io.Writer, r *view.Reading, first bool) error {
	if c.json() {
		return format.JSON(out, view.ToTopJSON(r))
	}
	text := view.Top(r)
	if !first {
		text = "\n" + text
	}
	_, err := io.WriteString(out, text)
	return err
}
