package cli

import (
	"fmt"
	"io"
	"slices"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/selection"
	"github.com/flowtally/flowtally/cmd/internal/view"
)

// getCmd prints counters once.
type getCmd struct {
	outputFlag
	readerFlag
	selection.Options
	Strict bool     `help:"Exit with 3 when the writer is not running or a counter has no valid value."`
	Name   []string `arg:"" optional:"" complete:"counters" help:"Counters to print; patterns as of the shell, such as 'w*', too. Default: all."`
}

// Help is shown by get --help.
func (*getCmd) Help() string {
	return `Works while the writer is dead, and says so. A counter that was never sampled has no value: "-" in the table, null in JSON. The values of a sum are of one snapshot; counters of different kinds or units are never added up, and the note names the counters that a sum lacks.

Examples:

  flowtally get

  flowtally get -o json web dns

  flowtally get --strict --instance edge web

  flowtally get --label team=ops --direction ingress

  flowtally get --sum-by team -o json`
}

func (c *getCmd) Run(env *Env) error {
	wanted, err := newSelection(c.Name, c.Options)
	if err != nil {
		return err
	}
	m, err := openMirror(c.readerFlag)
	if err != nil {
		return err
	}
	defer m.close()
	r, err := m.read(wanted)
	if err != nil {
		return err
	}

	if c.json() {
		err = format.JSON(env.Stdout, view.ToJSON(r))
	} else {
		_, err = io.WriteString(env.Stdout, view.Get(r))
	}
	if err != nil {
		return err
	}

	if !r.Writer.Live() {
		fmt.Fprintf(env.Stderr, "flowtally: %s: writer %s: these are its last values%s\n", r.Path, r.Writer, butDevices(r))
	}
	if c.Strict && degraded(r) {
		return exitError(exitDegraded)
	}
	return nil
}

// butDevices completes the note about a silent writer, because a device may still be writing its values.
func butDevices(r *view.Reading) string {
	if slices.ContainsFunc(r.Counters, func(c view.Counter) bool { return c.FromDevice }) {
		return "; values that a device writes are current"
	}
	return ""
}

// degraded reports whether the writer is not running or a counter has no valid value.
func degraded(r *view.Reading) bool {
	unusable := func(c view.Counter) bool { return !c.Present() || !c.Valid }
	return !r.Writer.Live() || slices.ContainsFunc(r.Counters, unusable)
}
