package backend

import (
	"context"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// HardwareBackend counts flows in devices, before their packets reach the SoftwareBackend. The engine calls its methods as
// it calls Install.
type HardwareBackend interface {
	Backend
	TimedCounters
	// Absent returns why no device was found since the start, or nil once there was one. Changed signals when the result
	// changes.
	Absent() error
	// Fits returns why hardware cannot count f exactly, or nil. above are the overlapping flows above f, all of
	// them counted in hardware. Fits ignores the interfaces in without. It must not retain above.
	Fits(f flow.Flow, above []Placed, without []string) error
	// Gone returns the installed flows that some device does not count any more, with the reasons. Their samples from
	// before the loss can be read until Remove. If the reason satisfies ErrUnread, the device still counts the flow, but
	// its slot could not be read for a while.
	Gone() map[string]error
	// Rename gives an installed flow another name, other labels or another Latency. It keeps the slot.
	Rename(was, now Placed)
	// Resets returns how often devices have reset the slots of an installed flow. The total lacks the packets between the
	// last sample and the reset, and nobody knows how many.
	Resets(f Placed) uint64
	// Lost returns the interfaces of an installed flow whose devices are lost, if its other devices count on. Otherwise,
	// or if no device counts on, it returns nil.
	Lost(f Placed) []string
	// StandIn ends the counting of a flow on an interface. From then on, the flow's count includes what slot id of from
	// counts.
	StandIn(f Placed, ifname string, from Counters, id uint32) error
	// Return counts on an interface again and ends the stand-in there. above are the flows above f on the
	// interface, where hardware must count all of them. The flow's count lacks what the stand-in counts from then on.
	Return(f Placed, above []Placed, ifname string) error
}

// SoftwareBackend has rules and a slot for every flow of the instance, even if hardware counts the flow: the flow's
// shadow. So the right flow wins each packet in software. Install is AddShadows followed by SetActive.
type SoftwareBackend interface {
	Backend
	// AddShadows adds the shadows of all of flows, or of none and returns an error. They need not count yet.
	AddShadows(ctx context.Context, flows []Placed) ([]Installed, error)
	// SetActive with on makes the shadows of flows count on every interface of the flows: all of them, or none and
	// returns an error. Without on their counts are not needed any more, and programs are detached from hooks where no
	// flow needs one. Shadows with action drop must only drop packets while they are active.
	SetActive(ctx context.Context, flows []Placed, on bool) error
	// CountApart with on gives the shadows of flows a slot of their own for one interface, and activates them there: all
	// of the flows, or none and returns an error. Without on the shadows' usual slots count these packets again. The
	// engine calls it after RemoveStale. A flow keeps such a slot until it is removed.
	CountApart(ctx context.Context, flows []Placed, ifname string, on bool) (ids []uint32, err error)
	// Look finds lost hooks. Call it before a total leaves its hooks: once they are released, nobody can see the
	// missed packets.
	Look()
	// Now returns the time on the clock of losses.
	Now() Moment
	// Outage returns when the last outage of a hook of f ended, and whether one is under way. A count of f from before
	// that end may lack packets. An outage under way will end after Now.
	Outage(f Placed) (last Moment, open bool)
	// Rely announces a total of f which depends on the hooks of f from now on, after counting elsewhere. If one of them is not
	// attached, an outage begins.
	Rely(f Placed)
	// CompleteSince returns since when the shadow of f has seen every packet of the flow. ok is false if it does not see
	// all of them now.
	CompleteSince(f Placed) (since Moment, ok bool)
}

// ChangeNoter is implemented by backends whose rules outlive the process. If the process dies within a change, the next
// one finds the note, and Install sets Gap for flows whose packets may have counted for others.
type ChangeNoter interface {
	// NoteChange notes whether a change of flows is under way.
	NoteChange(underWay bool)
}

// Roomy is implemented by backends which know in advance whether flows find room in their tables.
type Roomy interface {
	Backend
	// Room returns the free room of the tables. It is valid until the next call that adds or removes flows. Using it
	// changes nothing in the backend.
	Room() Room
}

// Room is the free room of a backend's tables. Install may still refuse a flow that fits, because only the attempt shows
// what the flow costs.
type Room interface {
	// Fits returns the error that Install would return for a flow without a free counter or rule: dataplane.ErrFull. If
	// the flow fits, cookie is that of the slot it would take over, or 0.
	Fits(f Placed) (cookie uint64, err error)
	// Take reserves the room of a flow, for later calls of Fits.
	Take(f Placed)
}

// InterfaceSetter is implemented by backends whose interfaces can change while they run.
type InterfaceSetter interface {
	// SetInterfaces replaces the names and patterns of the interfaces to count on. After an error they are as before.
	SetInterfaces(list []dataplane.Interface) error
	// CheckInterfaces returns an error if no interface of a list exists.
	CheckInterfaces(list []dataplane.Interface) error
}

// Moment is a time on a SoftwareBackend's clock of losses. The clock ticks each time a program is attached, and survives
// the process like the slots.
type Moment uint32

// After reports whether m is later than o. The clock wraps around, so the two must be less than 2^31 ticks apart.
func (m Moment) After(o Moment) bool { return int32(m-o) > 0 }
