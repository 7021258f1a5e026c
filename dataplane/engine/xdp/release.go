package xdp

import (
	"time"

	"github.com/flowtally/flowtally/xdp"
)

// Left reports the pins in a directory, by name. known is false where this process may not look: then it has not made any.
func Left(pinDir string) (names []string, known bool) {
	names, err := xdp.PinsIn(pinDir)
	return names, err == nil
}

// Release takes the programs of a dead process off their hooks and removes its pins, except those of keep. A process that
// is ending may hold them for as long as patience.
func Release(pinDir string, keep []string, patience time.Duration) error {
	_, err := xdp.Release(pinDir, xdp.ReleaseOptions{Keep: keep, Patience: patience})
	return translate(err)
}

// ReleaseOwn is Release for the pins of this process, which ends at once and may be in the middle of a start.
func ReleaseOwn(pinDir string, keep []string) error {
	if len(keep) == 0 {
		if _, err := xdp.Release(pinDir, xdp.ReleaseOptions{Held: true}); err != nil { // from here on no hook is taken
			return translate(err)
		}
	}
	var err error
	for range 3 { // a hook that is being taken meanwhile is pinned once
		if _, err = xdp.Release(pinDir, xdp.ReleaseOptions{Keep: keep, Own: true}); err == nil {
			break
		}
	}
	return translate(err)
}

// Detach takes the programs of a process that runs or hangs off their hooks. The process does not take them again before
// its next start. It returns the number of programs.
func Detach(pinDir string) (programs int, err error) {
	done, err := xdp.Release(pinDir, xdp.ReleaseOptions{Held: true})
	return done.Programs, translate(err)
}

// OtherBuild reports whether the pins hold programs of another build on hooks.
func OtherBuild(pinDir string) (bool, error) {
	is, err := xdp.OtherBuild(pinDir)
	return is, translate(err)
}

// Remove is Release of everything, for a person who asks for it. It returns the number of programs and of pins.
func Remove(pinDir string) (programs, pins int, err error) {
	done, err := xdp.Release(pinDir, xdp.ReleaseOptions{})
	return done.Programs, done.Pins, translate(err)
}
