package backend

import (
	"errors"
	"strings"

	"github.com/flowtally/flowtally/probe"
)

// ReasonOf returns the text of err for a user. If err wraps a [probe.UnsupportedError], that one is the reason, and the
// errors around it only say where it came up. Of joined errors each is a reason, so all of them are shown: verbs may lack
// a privilege where DevX is not supported.
func ReasonOf(err error) string {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if u, ok := e.(*probe.UnsupportedError); ok {
			return u.Error()
		}
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}
