// Package links watches the network interfaces of a network namespace.
package links

// Event is a change of a network interface.
type Event struct {
	Kind    Kind
	Name    string
	OldName string // Renamed
	Index   int
	Link    Link // the state after the change; zero for Removed and Lost
}

// Kind is the kind of a change.
type Kind string

const (
	Up        Kind = "up"        // has a carrier now
	Down      Kind = "down"      // lost its carrier, or was set down
	Added     Kind = "added"     // created, or moved into the namespace
	Removed   Kind = "removed"   // deleted, or moved to another namespace
	Renamed   Kind = "renamed"   // from OldName to Name
	Restacked Kind = "restacked" // has another master or another parent
	// Lost is the last event before the channel is closed. Some events were lost. Callers should call Watch again.
	Lost Kind = "lost"
)
