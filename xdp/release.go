package xdp

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Release takes from an instance what it has in the kernel, by the paths of its pins. It loads no program, reads no rule and builds
// no tree. So it works if the instance does not start, hangs or is dead, and takes no longer for more flows.

// ReleaseOptions says what Release takes. The zero value takes everything, of a process that is gone.
type ReleaseOptions struct {
	// Keep names pins that stay, with their maps and links. Empty: none stays, and the directory goes too.
	Keep []string

	// Held takes the programs of a process that runs, or hangs, off their hooks. Its maps and their pins stay. A mark stays
	// beside them, so that the process attaches no program again.
	Held bool

	// Own takes everything of the calling process, which then ends. The process has the lock, so Release does not wait for it.
	Own bool

	// Patience is how long Release waits for a process that is ending. 0: not at all.
	Patience time.Duration
}

// Released tells what Release has found and taken away.
type Released struct {
	Programs int // taken off their hooks
	Pins     int // removed
}

// detachedPin is the mark of ReleaseOptions.Held: a second pin of the meta map. The next Open removes it, unless
// Options.StayDetached is set.
const detachedPin = "detached"

// isOurPin reports whether a name in a directory of pins is of this package.
func isOurPin(name string) bool {
	if isLinkPin(name) || name == detachedPin || name == convertedPin {
		return true
	}
	return slices.ContainsFunc(newMaps().all, func(m *sharedMap) bool { return m.name == name })
}

// PinsIn lists the names of the pins in a directory, without those of other files. A directory that does not exist has none.
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

// detached reports whether Release has taken the hooks of this instance.
func (dp *Datapath) detached() bool {
	if dp.dir == "" {
		return false
	}
	_, err := os.Lstat(filepath.Join(dp.dir, detachedPin))
	return err == nil
}
