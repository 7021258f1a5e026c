package xdp

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

var (
	// ErrClosed: the Datapath was closed.
	ErrClosed = errors.New("rule set closed")
	// ErrInUse: another process owns the pins.
	ErrInUse = errors.New("pins in use by another process")
	// ErrFull: no room for one more rule, counter or interface; the text says which.
	ErrFull = errors.New("full")
	// ErrDense: so many rules match one packet that the programs would compare more of them than they can. More room
	// does not help.
	ErrDense = errors.New("too many rules match one packet")
	// ErrCostly: some packet could touch more nodes and entries than Options.WorstCost. More room does not help.
	ErrCostly = errors.New("too costly for one packet")
	// ErrIncompatible: the pins were made by a version with a layout that this one does not know, or for another size.
	ErrIncompatible = errors.New("incompatible pins")
	// ErrBusy: another program holds the hook; the text names it.
	ErrBusy = errors.New("hook is taken")
	// ErrDetached: somebody took this instance off its hooks.
	ErrDetached = errors.New("the instance was taken off its hooks by flowtally detach; a restart of it takes them again")
	// ErrPermission: a capability is missing; the text names it.
	ErrPermission = errors.New("missing privilege")
	// ErrNotFound: no such rule, counter or interface.
	ErrNotFound = errors.New("not found")
	// ErrExists: the rule is there already.
	ErrExists = errors.New("exists")
	// ErrInvalid: a rule, a name or an option breaks the rules of its type; the text has the
	// reason.
	ErrInvalid = errors.New("invalid")
	// ErrUndone: a change was taken back after packets may have been decided by its rules.
	ErrUndone = errors.New("some packets were decided by rules that were taken back")
	// ErrTorn: a counter changed during every attempt to read it.
	ErrTorn = errors.New("counter changed during every attempt to read it")
)

// errTrees: a bug of package xdp/tree.
var errTrees = errors.New("the trees differ from a linear matcher")

// errUnfinished: the maps were never made whole; nothing was counted with them.
var errUnfinished = errors.New("maps were left unfinished")

// explain adds the remedy to a refusal.
func explain(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w: %w: it takes CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (or root)", ErrPermission, err)
	}
	return err
}
