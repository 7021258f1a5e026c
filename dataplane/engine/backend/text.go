package backend

import (
	"errors"
	"strings"

	"github.com/flowtally/flowtally/probe"
)

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
