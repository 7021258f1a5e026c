package cli

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/internal/lab/demo"
)

// demoScreen shows progress: a live table if stdout is a terminal and not for JSON, else a line per second on stderr.
type demoScreen struct {
	env   *Env
	json  bool
	total time.Duration

	entered  bool      // the terminal shows its alternate screen
	hinted   bool      // the user was told how to look at the mirror from another terminal
	lastLine time.Time // of the last line on stderr
}

// show is called several times per second while the demo runs.
func (s *demoScreen) show(p demo.Progress) {
	var sent, counted uint64
	for _, c := range p.Flows {
		sent += c.SentPackets
		counted += c.Packets
	}
	status := fmt.Sprintf("%4.1fs  %s: %s sent, %s counted", p.Elapsed.Seconds(), p.Phase, format.Count(sent), format.Count(counted))

	if !s.hinted && p.Mirror != "" {
		s.hinted = true
		if name, ok := strings.CutSuffix(filepath.Base(p.Mirror), ".mirror"); ok {
			fmt.Fprintf(s.env.Stderr, "while it runs, in another terminal:  flowtally top --instance %s\n", name)
		}
	}

	if s.env.TTY && !s.json {
		if !s.entered {
			s.entered = true
			fmt.Fprint(s.env.Stdout, format.EnterScreen)
		}
		text := "flowtally demo  " + status + "\nmirror " + p.Mirror + "\n" + view.DemoLive(p.Flows)
		fmt.Fprint(s.env.Stdout, format.DrawOver(text, format.TerminalWidth(s.env.Stdout)))
		return
	}
	if time.Since(s.lastLine) >= time.Second {
		s.lastLine = time.Now()
		fmt.Fprintln(s.env.Stderr, status)
	}
}

// close leaves the alternate screen. Idempotent.
func (s *demoScreen) close() {
	if s.entered {
		s.entered = false
		fmt.Fprint(s.env.Stdout, format.LeaveScreen)
	}
}
