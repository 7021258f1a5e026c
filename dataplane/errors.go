package dataplane

import "errors"

// Sentinels. Each survives the plugin's wire: errors.Is returns the same on both sides.
var (
	// ErrClosed: the instance was closed.
	ErrClosed = errors.New("instance closed")
	// ErrExists: a flow of that name exists.
	ErrExists = errors.New("flow exists")
	// ErrNotFound: no flow, or no queue pair, has that name.
	ErrNotFound = errors.New("not found")
	// ErrNotConnected: the queue pair has no other end yet, or has lost it; the text says which.
	ErrNotConnected = errors.New("queue pair not connected")
	// ErrInvalid: a flow or a configuration breaks a rule; the text says which.
	ErrInvalid = errors.New("invalid")
	// ErrUnplaced: no backend can count the flow, or no source the queue pair. The text has the reason of each.
	ErrUnplaced = errors.New("nothing here can count it")
	// ErrInUse: another instance owns the mirror, the pins or the socket.
	ErrInUse = errors.New("in use by another instance")
	// ErrPermission: the process lacks a capability; the text names it.
	ErrPermission = errors.New("missing privilege")
	// ErrFull: a table, the mirror or a file system is full.
	ErrFull = errors.New("full")
	// ErrDense: so many flows match one packet that the programs of XDP would compare more of them than they can.
	ErrDense = errors.New("too many flows match one packet")
	// ErrCostly: with these flows some packet would cost XDP more than xdp.worst_cost. The text names the flows that cause it.
	ErrCostly = errors.New("too costly for one packet")
	// ErrIncompatible: the files or pins of another version, or of another configuration, cannot be used. The text
	// names the files to remove.
	ErrIncompatible = errors.New("incompatible with the existing files")
	// ErrRestart: only a restart of the instance changes the setting; the text names the setting.
	ErrRestart = errors.New("needs a restart")
	// ErrUnavailable: the plugin process is gone and is being restarted.
	ErrUnavailable = errors.New("plugin unavailable")
)

// UnfinishedError is the error of SetFlows when its caller leaves after the instance has decided on the change, and
// before the change is complete. The change goes on. Outcome receives its result once: nil, or the error after which
// every flow is counted as before. It satisfies errors.Is(err, context.Canceled) or context.DeadlineExceeded, like the
// context of the call.
type UnfinishedError struct {
	Cause   error // of the end of the context, with a description of the call
	Outcome <-chan error
}

// Error implements error.
func (e *UnfinishedError) Error() string {
	return e.Cause.Error() + "; the change is decided and goes on, and Placements tells its end"
}

// Unwrap returns the cause.
func (e *UnfinishedError) Unwrap() error { return e.Cause }
