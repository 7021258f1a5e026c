package xdp

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

var (
	// ErrClosed is returned by methods of a closed Datapath.
	ErrClosed = errors.New("rule set closed")
	// ErrInUse is returned when another process owns the pins.
	ErrInUse = errors.New("pins in use by another process")
	// ErrFull is returned when there is no room for another rule, counter or interface. The text says which.
	ErrFull = errors.New("full")
	// ErrDense is returned when more rules match one packet than a program can compare. Larger tables do not help.
	ErrDense = errors.New("too many rules match one packet")
	// ErrCostly is returned when some packet could touch more than Options.WorstCost. Larger tables do not help.
	ErrCostly = errors.New("too costly for one packet")
	// ErrIncompatible is returned when the pins have an unknown layout, or do not fit the options or the CPUs.
	ErrIncompatible = errors.New("incompatible pins")
	// ErrBusy is returned when another program holds the hook. The text names the program.
	ErrBusy = errors.New("hook is taken")
	// ErrDetached is returned after somebody has detached this instance by Release.
	ErrDetached = errors.New("the instance was taken off its hooks by flowtally detach; a restart of it takes them again")
	// ErrPermission is returned when the process lacks a capability. The text names it.
	ErrPermission = errors.New("missing privilege")
	// ErrNotFound is returned when there is no such rule, counter or interface.
	ErrNotFound = errors.New("not found")
	// ErrExists is returned when an equal rule exists, or when an owner already has a counter.
	ErrExists = errors.New("exists")
	// ErrInvalid is returned for a malformed rule, name or option. The text has the reason.
	ErrInvalid = errors.New("invalid")
	// ErrUndone is returned when a failed change was rolled back, but its rules may have decided some packets.
	ErrUndone = errors.New("some packets were decided by rules that were taken back")
	// ErrTorn is returned when a counter changed during every attempt to read it.
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
