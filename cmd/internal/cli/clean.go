package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/instances"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/shm"
)

// cleanCmd removes what is left of instances without a process. It ignores FLOWTALLY_INSTANCE: only the command line may
// choose what to remove.
type cleanCmd struct {
	Instance   instanceName `help:"The instance. One that was stopped with xdp.keep_pins is removed by its name alone." xor:"which" placeholder:"NAME"`
	AllDead    bool         `help:"All instances whose process ended without a stop, and the mirrors of stopped instances that no process reads." xor:"which"`
	Config     string       `short:"c" help:"The instance of this configuration, with the places that it names." xor:"which" placeholder:"FILE"`
	PinDir     string       `help:"A directory of pins. Without --instance the pins alone are removed, and the mirror keeps its totals." placeholder:"DIR"`
	Mirror     string       `help:"The mirror's file, where the configuration names another one than the default." placeholder:"PATH"`
	KeepMirror bool         `help:"Leave the mirror, with its totals."`
	Yes        bool         `short:"y" help:"Do not ask."`
}

// Help is shown by clean --help.
func (*cleanCmd) Help() string {
	return `Prints what it removes and asks. It detaches programs by the paths of their pins, so it needs no configuration and no plugin. An instance that a process runs is refused. One that was stopped with xdp.keep_pins is not dead: it is removed by its name alone. The host's journal gets a line with the user and the process.

Examples:

  flowtally clean --instance lb

  flowtally clean --config /etc/flowtally.yaml --keep-mirror

  flowtally clean --all-dead --yes`
}

func (c *cleanCmd) Run(env *Env) error {
	if c.Config != "" {
		cfg, err := loadConfig(env.Context, c.Config)
		if err != nil {
			return &usageError{err}
		}
		c.Instance = instanceName(cmp.Or(cfg.Instance, "default"))
		c.PinDir = cfg.XDP.PinDir
		c.Mirror = cfg.Mirror.Path
	}
	if c.Instance == "" && !c.AllDead && c.PinDir == "" {
		return withHint(usagef("nothing was named"), "flowtally clean --instance NAME # or --all-dead; flowtally instances lists them")
	}

	list, err := instances.List([]string{c.Mirror}, []string{c.PinDir})
	if err != nil {
		return fmt.Errorf("listing the instances of this host: %w", err)
	}
	chosen, err := c.choose(list)
	if err != nil {
		return err
	}
	if c.KeepMirror {
		chosen = withoutMirrors(chosen)
	}
	if len(chosen) == 0 {
		fmt.Fprintln(env.Stderr, "flowtally: nothing to remove")
		return nil
	}

	if _, err := fmt.Fprint(env.Stdout, instancesTable(chosen)); err != nil {
		return err
	}
	if !c.Yes {
		if err := confirm(env, "Remove what is listed, with its counts?"); err != nil {
			return err
		}
	}

	var errs []error
	for _, i := range chosen {
		errs = append(errs, clean(env, i))
	}
	return errors.Join(errs...)
}

// choose returns the instances to remove. It returns an error if a named instance does not exist, or if a process runs
// it.
func (c *cleanCmd) choose(list []instances.Instance) ([]instances.Instance, error) {
	if c.AllDead {
		return allDead(list), nil
	}

	chosen := ownFirst(slices.DeleteFunc(list, func(i instances.Instance) bool { return !c.names(i) }))
	if len(chosen) == 0 {
		what := "instance " + string(c.Instance)
		if c.Instance == "" {
			what = "the pins " + c.PinDir
		}
		return nil, withHint(fmt.Errorf("cleaning %s: %w: there are no pins and no mirror that this user may see", what, dataplane.ErrNotFound), "flowtally instances")
	}
	for _, i := range chosen {
		if i.HasProcess() {
			return nil, withHint(fmt.Errorf("cleaning instance %s: %w: process %d runs it", i.Name, dataplane.ErrInUse, i.PID),
				"stop it; in an emergency, also where it hangs: flowtally detach --instance %s", i.Name)
		}
	}

	if c.Instance == "" {
		return withoutMirrors(chosen), nil // --pin-dir alone
	}
	return chosen, nil
}

// allDead returns the dead instances, and those stopped instances whose mirrors have no reader.
func allDead(list []instances.Instance) []instances.Instance {
	hasReader := instances.Readers()
	return slices.DeleteFunc(list, func(i instances.Instance) bool {
		dead := i.State == instances.Dead
		unread := i.State == instances.Stopped && !hasReader(i.Mirror)
		return !dead && !unread
	})
}

// names reports whether the flags choose an instance: by its name, its pins or its mirror.
func (c *cleanCmd) names(i instances.Instance) bool {
	return c.Instance != "" && i.Name == string(c.Instance) ||
		c.PinDir != "" && i.Pins == c.PinDir ||
		c.Mirror != "" && i.Mirror == c.Mirror
}

// ownFirst narrows the instances to those of this user, if there are any. Another user may have an instance of the same
// name, and root must not remove it by mistake.
func ownFirst(chosen []instances.Instance) []instances.Instance {
	own := slices.DeleteFunc(slices.Clone(chosen), func(i instances.Instance) bool { return int(i.Owner) != os.Geteuid() })
	if len(own) > 0 {
		return own
	}
	return chosen
}

// withoutMirrors returns the instances without their mirrors, so that clean leaves these alone. It drops instances that
// have no pins.
func withoutMirrors(chosen []instances.Instance) (rest []instances.Instance) {
	for _, i := range chosen {
		if i.Pins == "" {
			continue
		}
		i.Mirror = ""
		i.Size = 0
		i.Idle = 0
		rest = append(rest, i)
	}
	return rest
}

// confirm returns nil only if the user answers yes.
func confirm(env *Env, question string) error {
	yes, err := ask(env, question)
	if yes {
		return nil
	}

	fmt.Fprintln(env.Stderr) // below the question
	if errors.Is(err, context.Canceled) {
		return withHint(errors.New("nothing was changed: a signal came before the answer"), "AGAIN --yes")
	}
	return withHint(errors.New("nothing was changed: the answer was not yes"), "AGAIN --yes")
}

// clean removes one instance. The pins go first, and the mirror only after them, because it has the totals of whatever
// still counts. Both removals take the instance's locks, so no instance of that name can start meanwhile.
func clean(env *Env, i instances.Instance) error {
	var programs, pins int
	var err error
	if i.Pins != "" {
		programs, pins, err = xdp.Remove(i.Pins)
	}
	if i.Mirror != "" && err == nil {
		if err = shm.Remove(i.Mirror); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		noteInJournal("clean: instance " + i.Name + ": " + err.Error())
		return fmt.Errorf("cleaning instance %s: %w", i.Name, err)
	}

	said := fmt.Sprintf("removed instance %s: %s, %s, %s of mirror", format.Printable(i.Name),
		format.Plural(uint64(programs), "program", "programs"), format.Plural(uint64(pins), "pin", "pins"), format.Bytes(i.Size))
	noteInJournal("clean: " + said)
	fmt.Fprintf(env.Stderr, "flowtally: %s\n", said)
	return nil
}
