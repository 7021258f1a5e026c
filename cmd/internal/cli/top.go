package cli

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/selection"
	"github.com/flowtally/flowtally/cmd/internal/view"
)

// topCmd shows rates and totals until a signal.
type topCmd struct {
	readerFlag
	selection.Options
	Interval time.Duration `short:"n" help:"Time between two looks." default:"1s"`
	Count    int           `short:"c" help:"End after so many looks. 0: never." default:"0" placeholder:"N"`
	Sort     string        `help:"Order: ${enum}." enum:"name,packets,bytes,rate" default:"name"`
	Name     []string      `arg:"" optional:"" complete:"counters" help:"Counters to show; patterns as of the shell, such as 'w*', too. Default: all."`
}

func (c *topCmd) Run(env *Env) error {
	if c.Interval < 10*time.Millisecond {
		return usagef("--interval %s: at least 10ms", c.Interval)
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
	before, err := m.read(wanted)
	if err != nil {
		return err
	}
	screen := newScreen(env)
	defer screen.close()
	cur := before
	tick := time.NewTicker(c.Interval)
	defer tick.Stop()
	for n := 1; ; n++ {
		view.Sort(cur.Counters, c.Sort)
		if err := screen.draw(cur); err != nil {
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
		m.reopen()
		before = cur
		var unknown *unknownError
		switch cur, err = m.read(wanted); {
		case err == nil, errors.As(err, &unknown):
			// The named counters may not exist now: the table shows that.
		case !m.ends(err):
			cur = before.Again(view.NewWriter(m.reader.Status()))
		default:
			return mirrorError(m.path, err)
		}
		view.Rates(before, cur)
	}
}

// screen is where top draws: over the last screen on a terminal, below it elsewhere.
type screen struct {
	out     io.Writer
	refresh bool
	drawn   bool
	last    string
}

func newScreen(env *Env) *screen {
	s := &screen{out: env.Stdout, refresh: env.TTY}
	if s.refresh {
		io.WriteString(s.out, format.EnterScreen)
	}
	return s
}

func (s *screen) draw(r *view.Reading) error {
	var err error
	if s.refresh {
		height, width := terminalSize(s.out)
		s.last = view.Top(r, height)
		_, err = io.WriteString(s.out, format.DrawOver(s.last, width))
	} else {
		sep := ""
		if s.drawn {
			sep = "\n"
		}
		_, err = io.WriteString(s.out, sep+view.Top(r, 0))
	}
	s.drawn = true
	return err
}

// close gives the terminal back, the last screen left on it.
func (s *screen) close() {
	if s.refresh {
		fmt.Fprint(s.out, format.LeaveScreen+s.last)
	}
}
