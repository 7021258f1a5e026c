package probe

import (
	"errors"
	"fmt"
)

// ErrNotSupported means that the probe has run and the feature is not supported.
var ErrNotSupported = errors.New("not supported")

// UnsupportedError is an [ErrNotSupported] with details.
type UnsupportedError struct {
	Feature string // such as "native XDP"
	Object  string // such as "eth0"; may be empty
	Reason  string // such as "driver has no ndo_bpf"
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

// Answer is the outcome of a probe.
type Answer uint8

const (
	Inconclusive Answer = iota // the probe could not run
	Yes                        // the feature is supported
	No                         // it is not, because of Result.Reason
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
	Reason  string // why not, or why the probe could not run; for Yes, a detail
	Fix     string
	// Backend that needs the feature, by its name in the configuration. Empty if the whole host does.
	Backend string
}

// Ask turns the error of a probe into a Result.
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
