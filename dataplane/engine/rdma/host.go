package rdma

import (
	"context"
	"io"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// Host replaces the RDMA devices of libibverbs. The model test of the engine passes New a Host with devices in memory.
type Host interface {
	// Ports lists the devices of this moment, each with one network interface.
	Ports() []Port
	// Open opens a device for counting.
	Open(Port) (Device, error)
}

// Port is a device, and the network interface of its port.
type Port struct{ Device, Interface string }

// Device is an open device.
type Device interface {
	// Slots is the number of slots of each HardwareCounters. A device with one slot counts like verbs, with several like DevX.
	Slots() int
	// Mode returns how the device counts flows of a direction and an action, or why it cannot.
	Mode(flow.Direction, flow.Action) (dataplane.Mode, error)
	// NewCounters makes hardware counters without rules.
	NewCounters() (HardwareCounters, error)
	// AddRule adds a rule that counts in a slot. Closing the rule removes it, and the slot keeps its count.
	AddRule(r Rule, in HardwareCounters, slot int) (io.Closer, error)
	// NextEvent waits for the next event of the device, until ctx ends.
	NextEvent(ctx context.Context) (Event, error)
	io.Closer
}

// HardwareCounters are the slots read by one command.
type HardwareCounters interface {
	// Query reads the slots into dst, from the first on.
	Query(dst []backend.Pair) error
	io.Closer
}

// Rule is one rule of a device. Level 0 is matched first.
type Rule struct {
	Match     flow.Match
	Direction flow.Direction
	Drop      bool
	Level     int
}

// Event is an event of a device.
type Event = nicEvent

// The events of a device.
const (
	DeviceFatal = nicFatal    // the device is gone, and no verb works
	PortDown    = nicPortDown // no packet passes, and the rules stay
	PortUp      = nicPortUp
)

// hostDevices makes a Host the hardware of a Backend.
type hostDevices struct{ Host }

func (h hostDevices) devices() (list []portInfo, err error) {
	for _, p := range h.Ports() {
		list = append(list, portInfo{name: p.Device, port: 1, netdev: p.Interface})
	}
	return list, nil
}

func (h hostDevices) open(i portInfo) (nic, error) {
	d, err := h.Open(Port{Device: i.name, Interface: i.netdev})
	if err != nil {
		return nil, err
	}
	return hostNIC{d}, nil
}

func (hostDevices) Close() error { return nil }

// hostNIC makes a Device a nic.
type hostNIC struct{ Device }

func (n hostNIC) steeringAPI() steeringAPI {
	if n.Slots() > 1 {
		return withDevX
	}
	return withVerbs
}

func (n hostNIC) mode(d flow.Direction, a flow.Action) (dataplane.Mode, error) { return n.Mode(d, a) }

func (n hostNIC) newBulk() (bulk, error) {
	c, err := n.NewCounters()
	if err != nil {
		return nil, err
	}
	return hostBulk{c, n.Slots()}, nil
}

func (n hostNIC) addRule(r rule, b bulk, slot int) (io.Closer, error) {
	rule := Rule{Match: r.match.Match, Direction: r.direction, Drop: r.drop, Level: r.level}
	return n.AddRule(rule, b.(hostBulk).HardwareCounters, slot)
}

func (n hostNIC) nextEvent(ctx context.Context) (nicEvent, error) { return n.NextEvent(ctx) }

// hostBulk makes HardwareCounters a bulk of n slots.
type hostBulk struct {
	HardwareCounters
	n int
}

func (b hostBulk) slots() int                          { return b.n }
func (b hostBulk) startsAtZero() bool                  { return b.n == 1 }
func (b hostBulk) query(dst []backend.Pair) error      { return b.Query(dst) }
func (b hostBulk) queryFinal(dst []backend.Pair) error { return b.Query(dst) }
