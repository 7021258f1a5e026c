package xdp

// LinkEvent is a change of a network interface.
type LinkEvent struct {
	Kind    LinkEventKind
	Name    string
	OldName string // LinkRenamed
	Index   int
	VLANOf  int // LinkAdded: the index of the device that a VLAN device is above; else 0
}

// LinkEventKind is the kind of a change.
type LinkEventKind string

const (
	LinkUp      LinkEventKind = "up"      // it has a carrier
	LinkDown    LinkEventKind = "down"    // it has none, or was set down
	LinkAdded   LinkEventKind = "added"   // new, or returned: the index may differ
	LinkRemoved LinkEventKind = "removed" // deleted, or moved to another namespace
	LinkRenamed LinkEventKind = "renamed" // OldName is Name now
	// LinkLost: events were lost, and the channel is closed behind this one; watch again.
	LinkLost LinkEventKind = "lost"
)
