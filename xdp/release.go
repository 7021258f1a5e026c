package xdp

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Release works on the paths of the pins alone. It loads no program, reads no rule and builds no tree. So it helps when an instance
// does not start or hangs, and many flows do not slow it down.

// ReleaseOptions says what Release removes. The zero value removes everything of a process that has ended.
type ReleaseOptions struct {
	// Keep names pins to leave in place, with their maps and links. If it is empty, Release also removes the directory.
	Keep []string

	// Held detaches the programs of a running or hanging process. Maps and their pins remain. Release leaves a mark, so that
	// the process does not attach its programs again.
	Held bool

	// Own removes everything of the calling process, just before it ends. Release does not lock the pins, because the process
	// has locked them itself.
	Own bool

	// Patience is how long Release waits for the lock of an ending process.
	Patience time.Duration
}

// Released counts what Release has removed.
type Released struct {
	Programs int // detached
	Pins     int
}

// detachedPin is the mark left by ReleaseOptions.Held, a second pin of the meta map. The next Open removes it, unless
// Options.StayDetached is set.
const detachedPin = "detached"

// isOurPin reports whether this package makes pins of this name.
func isOurPin(name string) bool {
	if isLinkPin(name) || slices.Contains([]string{detachedPin, convertedPin, membersPin, nextMembersPin}, name) {
		return true
	}
	return slices.ContainsFunc(newMaps().all, func(m *sharedMap) bool { return m.name == name })
}

// PinsIn lists the names of our pins in a directory. If the directory does not exist, the list is empty.
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

// detached reports whether somebody has called Release with ReleaseOptions.Held for this instance.
func (dp *Datapath) detached() bool {
	if dp.dir == "" {
		return false
	}
	_, err := os.Lstat(filepath.Join(dp.dir, detachedPin))
	return err == nil
}
