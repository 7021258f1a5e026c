package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/instances"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
)

// detachCmd takes the programs of an instance off its hooks at once. It never talks to the instance, so it works even if
// the instance hangs. It ignores FLOWTALLY_INSTANCE: only the command line may choose whose programs come off.
type detachCmd struct {
	Instance instanceName `required:"" help:"The instance." placeholder:"NAME"`
	PinDir   string       `help:"The directory of its pins, where the configuration names one that is on no mounted bpffs." placeholder:"DIR"`
}

// Help is shown by detach --help.
func (*detachCmd) Help() string {
	return `For an emergency, such as a drop rule that matches too much. The programs are detached by the paths of their pins: the instance is not asked. Where it runs it goes on without programs, says so by a condition, and takes its hooks again when it is restarted. Its pinned counts stay.

Examples:

  flowtally detach --instance lb`
}

func (c *detachCmd) Run(env *Env) error {
	list, err := instances.List(nil, []string{c.PinDir})
	if err != nil {
		return fmt.Errorf("listing the instances of this host: %w", err)
	}
	list = slices.DeleteFunc(list, func(i instances.Instance) bool {
		named := i.Name == string(c.Instance) || i.Pins == c.PinDir
		return i.Pins == "" || !named
	})
	if len(list) == 0 {
		return withHint(fmt.Errorf("detaching instance %s: %w: it has no pins that this user may see", c.Instance, dataplane.ErrNotFound), "flowtally instances")
	}

	var errs []error
	for _, i := range list {
		errs = append(errs, c.detach(env, i))
	}
	return errors.Join(errs...)
}

// detach takes the programs of one directory of pins off their hooks. If only some programs come off, it returns an
// error, and the journal still says how many did.
func (c *detachCmd) detach(env *Env, i instances.Instance) error {
	whose := "instance " + format.Printable(i.Name)
	if i.Name != string(c.Instance) { // --pin-dir names the pins of another instance
		whose += ", pinned in " + format.Printable(i.Pins) + ","
	}

	n, err := xdp.Detach(i.Pins)
	said := fmt.Sprintf("took %s of %s off its hooks", format.Plural(uint64(n), "program", "programs"), whose)
	noteInJournal("detach: " + said)
	if err != nil {
		return fmt.Errorf("detaching %s: %w", strings.TrimSuffix(whose, ","), err)
	}

	if i.HasProcess() {
		said += "; a restart of the instance takes them again"
	}
	fmt.Fprintf(env.Stderr, "flowtally: %s\n", said)
	return nil
}
