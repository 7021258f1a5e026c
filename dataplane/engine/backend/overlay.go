package backend

import (
	"context"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// HardwareBackend counts some flows in devices, before the packets reach the SoftwareBackend. The engine calls
// its methods as it calls Install.
type HardwareBackend interface {
	Backend
	TimedCounters
	// Absent returns why the host has had no device to count with, and nil once it has had one. Changed signals
	// when the result changes.
	Absent() error
	// Fits returns why hardware cannot count f exactly, or nil. above are the flows that win over f on packets
	// that match both; hardware counts all of them. Fits does not keep above. It ignores the interfaces in
	// without.
	Fits(f flow.Flow, above []Placed, without []string) error
	// Gone returns the installed flows that no device counts any more, until Remove, with the reasons. Their
	// samples from before the loss can still be read. A flow whose reason satisfies ErrUnread is still counted,
	// but its slot could not be read for a while.
	Gone() map[string]error
	// Rename makes an installed flow another one, which differs in name, labels and Latency alone.
	Rename(was, now Placed)
	// Resets returns how often a device has reset the slots of an installed flow. The number of packets between
	// the last sample of a slot and its reset is unknown.
	Resets(f Placed) uint64
	// Lost returns the interfaces of an installed flow whose devices count no more, if all other devices of the
	// flow count it. Otherwise it returns nil.
	Lost(f Placed) []string
	// StandIn ends the counting on an interface. From then on the flow's count is the sum of its devices and of
	// the packets that slot id of from counts from now on.
	StandIn(f Placed, ifname string, from Counters, id uint32) error
	// Return counts on an interface again, and ends the stand-in there. above are the flows that win over f on
	// that interface; hardware counts all of them there. The flow's count lacks the packets that the stand-in counts
	// from now on.
	Return(f Placed, above []Placed, ifname string) error
}

// SoftwareBackend can hold every flow of the instance, as rules that win its match and a slot, although the
// engine publishes only some of them from there. The rules and the slot of a flow are its shadow. Install is
// AddShadows and then SetActive.
type SoftwareBackend interface {
	Backend
	// AddShadows adds the shadows of all of flows, or of none and returns an error. Their counts are not needed yet.
	AddShadows(ctx context.Context, flows []Placed) ([]Installed, error)
	// SetActive with on makes the shadows of flows count on every interface that the flows name. Without on it notes
	// that their counts are not needed, and detaches programs from hooks where no count is needed. The shadow of
	// a flow that drops does so only while it is on.
	SetActive(ctx context.Context, flows []Placed, on bool) error
	// CountApart with on counts the packets that the shadows of flows match on an interface in slots of their own, and
	// activates these there, for all of flows or none. Without on it ends that: the shadows' slots count these
	// packets then. It is called after RemoveStale. A slot belongs to its flow until the flow is removed.
	CountApart(ctx context.Context, flows []Placed, ifname string, on bool) (ids []uint32, err error)
	// Look finds lost hooks. It comes before a total leaves its hooks: a hook that is released does not show any more that it
	// missed packets.
	Look()
	// Now returns the time on the clock of losses.
	Now() Moment
	// Outage returns when the last outage of a hook that counts for f ended, and whether one is under way. A count of f from
	// before that end may lack packets. An outage that is under way ends later than now.
	Outage(f Placed) (last Moment, open bool)
	// Rely tells that a total of f that has counted elsewhere counts by the hooks of f from now on. A hook that is refused is
	// an outage then.
	Rely(f Placed)
	// CompleteSince returns from when on the shadow of f has seen every packet of its flow. ok is false if it does not see
	// all of them now.
	CompleteSince(f Placed) (since Moment, ok bool)
}

// ChangeNoter is a backend whose rules outlive the process. If the process dies within a change, the next one finds the
// note, and Install returns Gap for the flows whose packets may have counted for others.
type ChangeNoter interface {
	// NoteChange notes whether a change of the flows is under way.
	NoteChange(underWay bool)
}

// Roomy is a backend that knows which flows its tables have room for, before it is asked to count them.
type Roomy interface {
	Backend
	// Room returns the room of the tables. It is valid until the next call that adds or removes flows. It touches nothing.
	Room() Room
}

// Room is what the tables of a backend have room for, beside the flows that were taken. More may be refused: only the attempt
// tells what the flows cost.
type Room interface {
	// Fits returns the error of Install for a flow that finds no counter or no rule: dataplane.ErrFull. A flow that fits has the
	// cookie of the slot that it takes over, or 0.
	Fits(f Placed) (cookie uint64, err error)
	// Take takes the room of a flow.
	Take(f Placed)
}

// InterfaceSetter is a backend whose interfaces can change while it runs.
type InterfaceSetter interface {
	// SetInterfaces makes list the names and patterns of the interfaces to count on, all or none.
	SetInterfaces(list []dataplane.Interface) error
	// CheckInterfaces returns an error for a list of which no interface exists.
	CheckInterfaces(list []dataplane.Interface) error
}

// Moment is a time on the clock of losses of a SoftwareBackend. The clock ticks each time that a program is attached. It is
// as durable as the slots.
type Moment uint32

// After reports whether m is later than o. The clock wraps around.
func (m Moment) After(o Moment) bool { return int32(m-o) > 0 }
