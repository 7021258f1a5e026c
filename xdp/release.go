package xdp

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Release takes what an instance has in the kernel away from it by the paths of its pins. It loads no program, reads no
// rule and builds no tree: it works where an instance does not start, hangs or is dead, and its time does not grow with
// the number of flows.

// ReleaseOptions say what Release takes away. The zero value takes everything, of a process that is gone.
type ReleaseOptions struct {
	// Keep names pins that stay, with what they hold. Empty: none, and the directory goes too.
	Keep []string
	// Held also takes the programs of a process that runs, or hangs, off their hooks. Its maps and their pins stay, and
	// so does a mark: the process takes no hook again.
	Held bool
	// Own takes everything of this very process, which ends at once. It does not wait for the lock, which the process has.
	Own bool
	// Patience is how long Release waits for a process that is ending; 0: not at all.
	Patience time.Duration
}

// Released is what Release has found and taken away.
type Released struct {
	Programs int // taken off their hooks
	Pins     int // removed
}

// detachedPin is the mark of Release with Held: a second pin of the meta map. The next Open removes it, unless
// it is told to stay detached.
const detachedPin = "detached"

// isOurPin reports whether a name in a directory of pins is of this package.
func isOurPin(name string) bool {
	return isLinkPin(name) || name == detachedPin || name == convertedPin || slices.ContainsFunc(newMaps().all, func(m *sharedMap) bool { return m.name == name })
}

// PinsIn lists the names of the pins in a directory, the names of other files left out. A directory that does not exist
// has none.
func PinsIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if isOurPin(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// detached reports whether Release has taken the hooks of this process.
func (rs *RuleSet) detached() bool {
	if rs.dir == "" {
		return false
	}
	_, err := os.Lstat(filepath.Join(rs.dir, detachedPin))
	return err == nil
}
