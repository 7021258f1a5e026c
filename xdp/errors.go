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
	// ErrInUse: another process has locked the pins.
	ErrInUse = errors.New("pins in use by another process")
	// ErrFull: there is no room for another rule, counter, interface or set. The text says which.
	ErrFull = errors.New("full")
	// ErrDense: more rules match one packet than a program can compare. Larger tables do not help.
	ErrDense = errors.New("too many rules match one packet")
	// ErrCostly: some packet could touch more than Options.WorstCost. Larger tables do not help.
	ErrCostly = errors.New("too costly for one packet")
	// ErrIncompatible: the pins have an unknown layout, or do not fit the options or the number of CPUs.
	ErrIncompatible = errors.New("incompatible pins")
	// ErrBusy: another program holds the hook. The text names the program.
	ErrBusy = errors.New("hook is taken")
	// ErrDetached: somebody has detached this instance by Release, or by flowtally detach.
	ErrDetached = errors.New("the instance was taken off its hooks by flowtally detach; a restart of it takes them again")
	// ErrPermission: the process lacks a capability. The text names it.
	ErrPermission = errors.New("missing privilege")
	// ErrNotFound: there is no such rule, counter, interface or set.
	ErrNotFound = errors.New("not found")
	// ErrExists: an equal rule or a set of this name exists, or the owner already has a counter.
	ErrExists = errors.New("exists")
	// ErrInvalid: a rule, a name or an option is malformed. The text has the reason.
	ErrInvalid = errors.New("invalid")
	// ErrUndone: a failed change was rolled back, but its rules may have decided some packets.
	ErrUndone = errors.New("some packets were decided by rules that were taken back")
	// ErrTorn: the counter changed during every attempt to read it.
	ErrTorn = errors.New("counter changed during every attempt to read it")
)

// errTrees means a bug in package xdp/tree.
var errTrees = errors.New("the trees differ from a linear matcher")

// errUnfinished means that a process died while it made the maps. Nothing was counted in them.
var errUnfinished = errors.New("maps were left unfinished")

// explain adds the missing capabilities to a permission error.
func explain(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w: %w: it takes CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (or root)", ErrPermission, err)
	}
	return err
}
