//go:build unix

package plugin

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/flowtally/flowtally/internal/trust"
)

// trusted refuses, for root, a binary that somebody else could have written than
// root and the owner of this very program. Anyone else is not root and starts
// what it likes.
func trusted(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	why, err := trust.Distrust(real, func(uid uint32) bool { return uid == 0 || trust.OwnsProgram(uid) })
	if err == nil && why != "" {
		err = fmt.Errorf("%w: %s", ErrUntrusted, why)
	}
	return err
}
