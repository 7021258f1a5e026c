package rdma

import (
	"context"
	"io"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// nic is one open RDMA device as this backend uses it. Two implementations drive ibv, by
// verbs and by DevX; tests bring a third. All methods may be called from any
// goroutine, and block its thread as long as the firmware takes.
type nic interface {
	// steeringAPI says which matches it takes.
	steeringAPI() steeringAPI
	// mode is how it counts flows of that side and action; an error says why it cannot.
	mode(d flow.Direction, a flow.Action) (dataplane.Mode, error)
	// newBulk makes hardware counters.
	newBulk() (bulk, error)
	// addRule makes a rule that counts in a slot of a bank. Closing it ends the rule, not
	// the counter; a packet that was counted is in the counter by then.
	addRule(r rule, b bulk, slot int) (io.Closer, error)
	// nextEvent waits for the next change of the device that matters here, until ctx ends.
	nextEvent(ctx context.Context) (nicEvent, error)
	// Close closes the device, when its rules and banks are.
	Close() error
}

// bulk is what one firmware command reads: one counter, or a bulk of them.
type bulk interface {
	slots() int
	// startsAtZero says that a new one shows 0, and cannot be read before its first rule.
	startsAtZero() bool
	// query reads every slot, in ONE command, while rules count in it.
	query(dst []backend.Pair) error
	// queryFinal reads every slot once more after the rules of some have gone.
	queryFinal(dst []backend.Pair) error
	Close() error
}

// rule is one rule of hardware.
type rule struct {
	match     ruleMatch
	direction flow.Direction
	mode      dataplane.Mode
	drop      bool
	level     int // priority: 0 is looked at first
}

// numLevels is how many priorities the flows of one side can use: mlx5's
// MLX5_BY_PASS_NUM_REGULAR_PRIOS, verbs and DevX alike.
const numLevels = 16

// nicEvent is what happened to a device by itself.
type nicEvent uint8

const (
	nicFatal nicEvent = iota // it is gone: nothing of it works any more
	nicPortDown
	nicPortUp
)
