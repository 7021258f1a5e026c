package cli

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/lab"
)

// isolate moves the process into a network namespace of its own; again is what a person
// types to have it done as root.
func isolate(again string) error {
	err := lab.Isolate("FLOWTALLY_DEMO_ISOLATED")
	if errors.Is(err, unix.EPERM) {
		return withHint(fmt.Errorf("demo: %w: %w", dataplane.ErrPermission, err), "sudo %s", again)
	}
	return err
}
