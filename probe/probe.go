package probe

import (
	"errors"
	"fmt"
)

// ErrNotSupported is satisfied by every conclusive "no".
var ErrNotSupported = errors.New("not supported")

// UnsupportedError is a conclusive "no".
type UnsupportedError struct {
	Feature string // the probed feature: "native XDP"
	Object  string // its object: "eth0"; may be empty
	Reason  string // why not: "driver has no ndo_bpf"
	Fix     string // the next step; may be empty
}

func (e *UnsupportedError) Error() string {
	on := ""
	if e.Object != "" {
		on = " on " + e.Object
	}
	return fmt.Sprintf("%s%s: not supported: %s", e.Feature, on, e.Reason)
}

// Is makes errors.Is(err, ErrNotSupported) true.
func (e *UnsupportedError) Is(target error) bool { return target == ErrNotSupported }

// Answer is the value of a Result.
type Answer uint8

const (
	Inconclusive Answer = iota // the question could not be asked: ask again
	Yes                        // it is supported
	No                         // Reason says why not
)

func (a Answer) String() string {
	words := [...]string{"inconclusive", "yes", "no"}
	if int(a) < len(words) {
		return words[a]
	}
	return fmt.Sprintf("Answer(%d)", uint8(a)) // from a newer peer on the wire
}

// Result is the result of one probe of one object.
type Result struct {
	Feature string
	Object  string
	Answer  Answer
	Reason  string // why not, or why the question could not be asked; detail for yes
	Fix     string
	// Backend of the probe, by its name in the configuration; empty for the host.
	Backend string
}

// Ask turns a probe's error into a Result: nil is yes, an error that satisfies
// ErrNotSupported is no, any other is inconclusive.
func Ask(feature, object string, err error) Result {
	r := Result{Feature: feature, Object: object}
	var u *UnsupportedError
	switch {
	case err == nil:
		r.Answer = Yes
	case errors.As(err, &u):
		r.Answer, r.Reason, r.Fix = No, u.Reason, u.Fix
	case errors.Is(err, ErrNotSupported):
		r.Answer, r.Reason = No, err.Error()
	default:
		r.Reason = err.Error()
	}
	return r
}
