package rdma

import (
	"context"
	"io"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// nic is one open RDMA device. verbsNIC and devxNIC implement it, and the tests have a third implementation. Its
// methods may be called from any goroutine, and block the thread as long as the firmware takes.
type nic interface {
	// steeringAPI returns the API that the rules go through.
	steeringAPI() steeringAPI
	// mode returns how the device counts flows of a direction and an action, or why it cannot.
	mode(d flow.Direction, a flow.Action) (dataplane.Mode, error)
	// newBulk makes the hardware counters of a bulk.
	newBulk() (bulk, error)
	// addRule makes a rule that counts in a slot of a bulk. Closing the rule keeps the slot. When Close returns,
	// the slot contains every packet that the rule has counted.
	addRule(r rule, b bulk, slot int) (io.Closer, error)
	// nextEvent waits for the next event of the device that concerns counting, until ctx ends.
	nextEvent(ctx context.Context) (nicEvent, error)
	// Close closes the device, after its rules and bulks.
	Close() error
}

// bulk is the slots that one firmware command reads: one hardware counter, or many.
type bulk interface {
	slots() int
	// startsAtZero reports whether a new bulk stands at 0 and cannot be read before its first rule.
	startsAtZero() bool
	// query reads every slot, in ONE command, while rules count in it.
	query(dst []backend.Pair) error
	// queryFinal reads every slot, after the rules of some are gone.
	queryFinal(dst []backend.Pair) error
	Close() error
}

// rule is one rule of hardware.
type rule struct {
	match     ruleMatch
	direction flow.Direction
	mode      dataplane.Mode
	drop      bool
	level     int // priority: 0 is matched first
}

// numLevels is the number of priorities that the flows of one direction can use: mlx5's
// MLX5_BY_PASS_NUM_REGULAR_PRIOS, for verbs and DevX.
const numLevels = 16

// nicEvent is an event of a device.
type nicEvent uint8

const (
	nicFatal nicEvent = iota // the device is gone, and no verb works
	nicPortDown
	nicPortUp
)
