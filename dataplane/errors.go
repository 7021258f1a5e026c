package dataplane

import "errors"

// The errors of a [Service]. Compare with errors.Is, also on the other side of the plugin. The texts have the details.
var (
	// ErrClosed means that Close was called.
	ErrClosed = errors.New("instance closed")
	// ErrExists means that a flow or a counter already has the name.
	ErrExists = errors.New("flow exists")
	// ErrNotFound means that no flow, queue pair or counter has the name.
	ErrNotFound = errors.New("not found")
	// ErrNotConnected means that the queue pair has no peer yet, or has lost it.
	ErrNotConnected = errors.New("queue pair not connected")
	// ErrInvalid means that a flow or a configuration breaks a rule. Another attempt cannot succeed.
	ErrInvalid = errors.New("invalid")
	// ErrUnplaced means that no backend can count the flow, or no source the queue pair.
	ErrUnplaced = errors.New("nothing here can count it")
	// ErrInUse means that another instance owns the mirror, the pins or the socket.
	ErrInUse = errors.New("in use by another instance")
	// ErrPermission means that the process lacks a capability or the right to a file.
	ErrPermission = errors.New("missing privilege")
	// ErrFull means that a table, the mirror or a file system is full.
	ErrFull = errors.New("full")
	// ErrDense means that more flows match one packet than an XDP program can compare with it.
	ErrDense = errors.New("too many flows match one packet")
	// ErrCostly means that some packet would cost XDP more than xdp.worst_cost allows.
	ErrCostly = errors.New("too costly for one packet")
	// ErrIncompatible means that files or pins come from another version or configuration and must be removed first.
	ErrIncompatible = errors.New("incompatible with the existing files")
	// ErrRestart means that a setting cannot change while the instance runs.
	ErrRestart = errors.New("needs a restart")
	// ErrUnavailable means that the plugin has died and is being restarted. Try again.
	ErrUnavailable = errors.New("plugin unavailable")
)

// UnfinishedError is returned by SetFlows if its context ends after the instance has decided on the change, but before
// the change is complete. The change continues, and Outcome receives its result exactly once. After an error in Outcome
// every flow is counted as before.
//
// It satisfies errors.Is for the error of the context: context.Canceled or context.DeadlineExceeded.
type UnfinishedError struct {
	Cause   error // the error of the context, with a description of the call
	Outcome <-chan error
}

// Error implements error.
func (e *UnfinishedError) Error() string {
	return e.Cause.Error() + "; the change is decided and goes on, and Placements tells its end"
}

// Unwrap returns the cause.
func (e *UnfinishedError) Unwrap() error { return e.Cause }
