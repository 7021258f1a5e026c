package xdp

// LinkEvent is a change of a network interface.
type LinkEvent struct {
	Kind    LinkEventKind
	Name    string
	OldName string // LinkRenamed
	Index   int
}

// LinkEventKind says what changed.
type LinkEventKind string

const (
	LinkUp      LinkEventKind = "up"
	LinkDown    LinkEventKind = "down"
	LinkAdded   LinkEventKind = "added" // new, or returned: the index may differ
	LinkRemoved LinkEventKind = "removed"
	LinkRenamed LinkEventKind = "renamed"
)
