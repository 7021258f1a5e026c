package rdma

import (
	"context"
	"io"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// nic is an open RDMA device. Any goroutine may call its methods. They block the thread for as long as the firmware takes.
type nic interface {
	// steeringAPI returns the API through which rules go.
	steeringAPI() steeringAPI
	// mode returns how the device counts flows of a direction and an action, or why it cannot.
	mode(d flow.Direction, a flow.Action) (dataplane.Mode, error)
	// newBulk makes hardware counters. The caller must close them after their rules.
	newBulk() (bulk, error)
	// addRule adds a rule that counts in a slot of a bulk. Closing the rule leaves the slot alone. When Close returns, the slot
	// has every packet of the rule.
	addRule(r rule, b bulk, slot int) (io.Closer, error)
	// nextEvent waits for the next event of the device that concerns counting, until ctx ends.
	nextEvent(ctx context.Context) (nicEvent, error)
	// Close closes the device, after its rules and bulks.
	Close() error
}

// bulk is the slots that one firmware command reads: one hardware counter with verbs, many with DevX.
type bulk interface {
	slots() int
	// startsAtZero reports whether a new bulk stands at 0 and cannot be read before its first rule.
	startsAtZero() bool
	// query reads all slots with ONE command. Some slot must have a rule if startsAtZero is true.
	query(dst []backend.Pair) error
	// queryFinal is query when rules are gone, perhaps all of them.
	queryFinal(dst []backend.Pair) error
	Close() error
}

// rule is one rule on a device.
type rule struct {
	match     ruleMatch
	direction flow.Direction
	mode      dataplane.Mode
	drop      bool
	level     int // priority: 0 is matched first
}

// numLevels is the number of priorities for the flows of one direction, with verbs and with DevX: mlx5's
// MLX5_BY_PASS_NUM_REGULAR_PRIOS.
const numLevels = 16

// nicEvent is an event of a device that concerns counting.
type nicEvent uint8

const (
	nicFatal nicEvent = iota // the device is gone, and no verb works
	nicPortDown
	nicPortUp
)
