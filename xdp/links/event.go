// Package links watches the network interfaces of a network namespace.
package links

// Event is a change of a network interface.
type Event struct {
	Kind    Kind
	Name    string
	OldName string // Renamed
	Index   int
	VLANOf  int // Added: the index of the device that a VLAN device is above; else 0
}

// Kind is the kind of a change.
type Kind string

const (
	Up      Kind = "up"      // it has a carrier
	Down    Kind = "down"    // it has none, or was set down
	Added   Kind = "added"   // new, or returned: the index may differ
	Removed Kind = "removed" // deleted, or moved to another namespace
	Renamed Kind = "renamed" // OldName is Name now
	// Lost: events were lost, and the channel is closed behind this one; watch again.
	Lost Kind = "lost"
)
