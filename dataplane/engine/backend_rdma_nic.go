package engine

import (
	"context"
	"io"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// nic is one open RDMA device as this backend uses it. Two implementations drive ibv, by
// verbs and by DevX; tests bring a third. All methods may be called from any
// goroutine, and block its thread as long as the firmware takes.
type nic interface {
	// road says which matches it takes.
	road() road
	// mode is how it counts flows of that side and action; an error says why it cannot.
	mode(d flow.Direction, a flow.Action) (hwMode, error)
	// newBank makes hardware counters.
	newBank() (bank, error)
	// addRule makes a rule that counts in a slot of a bank. Closing it ends the rule, not
	// the counter; a packet that was counted is in the counter by then.
	addRule(r hwRule, b bank, slot int) (io.Closer, error)
	// nextEvent waits for the next change of the device that matters here, until ctx ends.
	nextEvent(ctx context.Context) (nicEvent, error)
	// Close closes the device, when its rules and banks are.
	Close() error
}

// bank is what one firmware command reads: one counter, or a bulk of them.
type bank interface {
	slots() int
	// cleared says that a new one shows 0, and cannot be read before its first rule.
	cleared() bool
	// query reads every slot, in ONE command, while rules count in it.
	query(dst []backend.Pair) error
	// last reads every slot once more after the rules of some have gone.
	last(dst []backend.Pair) error
	Close() error
}

// hwRule is one rule of hardware.
type hwRule struct {
	match     hwMatch
	direction flow.Direction
	mode      hwMode
	drop      bool
	level     int // priority: 0 is looked at first
}

// hwMode is how hardware counts a flow, in the words of dataplane.Source.
type hwMode string

const (
	modeDevX     hwMode = "devx"      // DEFAULT_MISS: the first match ends, the kernel gets the packet
	modeDontTrap hwMode = "dont-trap" // a match goes on to the rules of later priorities
	modeEgress   hwMode = "egress"
	modeDrop     hwMode = "drop"  // takes the packet, as the flow asks
	modeSteal    hwMode = "steal" // takes the packet, as the configuration allows
)

// levels is how many priorities the flows of one side can use: mlx5's
// MLX5_BY_PASS_NUM_REGULAR_PRIOS, verbs and DevX alike.
const levels = 16

// nicEvent is what happened to a device by itself.
type nicEvent uint8

const (
	nicFatal nicEvent = iota // it is gone: nothing of it works any more
	nicPortDown
	nicPortUp
)
