// Package links watches the network interfaces of a network namespace.
package links

// Event is a change of a network interface.
type Event struct {
	Kind    Kind
	Name    string
	OldName string // Renamed
	Index   int
	Link    Link // the link after the change; zero for Removed and Lost
}

// Kind is the kind of a change.
type Kind string

const (
	Up        Kind = "up"        // it has a carrier
	Down      Kind = "down"      // it has none, or was set down
	Added     Kind = "added"     // new, or returned: the index may differ
	Removed   Kind = "removed"   // deleted, or moved to another namespace
	Renamed   Kind = "renamed"   // OldName is Name now
	Restacked Kind = "restacked" // it has another master or another parent
	// Lost: events were lost, and the channel is closed behind this one; watch again.
	Lost Kind = "lost"
)
