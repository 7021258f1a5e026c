package backend

import (
	"errors"
	"fmt"
	"strings"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/probe"
)

// Identity returns the flow's text in the mirror. Two flows of one name and one identity count the same packets,
// so the second goes on where the first stopped.
func Identity(f flow.Flow) string {
	on := f.Interface
	if on == "" {
		on = "any"
	}
	d, _ := f.Direction.MarshalText()
	return fmt.Sprintf("%s on %s: %s", d, on, f.Match)
}

// ReasonOf returns the text of err for a user: the text of the [probe.UnsupportedError] that err
// wraps, without the text of the errors around it. An error that joins several errors is shown in
// full, because each of them is a reason: verbs may be refused for the lack of a privilege where
// DevX is not supported.
func ReasonOf(err error) string {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if u, ok := e.(*probe.UnsupportedError); ok {
			return u.Error()
		}
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}
