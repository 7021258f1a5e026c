package cli

import (
	"errors"
	"io/fs"

	"github.com/flowtally/flowtally/cmd/internal/capture"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// openCapture opens a capture, or standard input for "-".
func openCapture(env *Env, path string) (*capture.File, error) {
	f, err := capture.OpenFile(env.Context, path, env.Stdin)
	if errors.Is(err, capture.ErrDirectory) {
		return nil, &usageError{err}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, withHint(err, "check the path; - is standard input")
	}
	return f, err
}

// hintCapture adds a next step if the file is not a capture.
func hintCapture(err error) error {
	if errors.Is(err, capture.ErrNoCapture) {
		return withHint(err, "tcpdump -i NAME -w FILE writes a capture")
	}
	return err
}

// direction converts the value of --direction. The parser has checked it against the enum.
func direction(word string) flow.Direction {
	if word == flow.Egress.String() {
		return flow.Egress
	}
	return flow.Ingress
}
