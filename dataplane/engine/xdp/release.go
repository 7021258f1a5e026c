package xdp

import (
	"time"

	"github.com/flowtally/flowtally/xdp"
)

// Left lists the pins in a directory by name. known is false if this process may not look there; then it has not pinned anything
// either.
func Left(pinDir string) (names []string, known bool) {
	names, err := xdp.PinsIn(pinDir)
	return names, err == nil
}

// Release cleans up after a dead process: it detaches the programs and removes the pins, except for the pins in keep. It waits up
// to patience for a process on its way out.
func Release(pinDir string, keep []string, patience time.Duration) error {
	_, err := xdp.Release(pinDir, xdp.ReleaseOptions{Keep: keep, Patience: patience})
	return translate(err)
}

// ReleaseOwn is Release for the pins of this process. Call it right before the exit, even in the middle of a start.
func ReleaseOwn(pinDir string, keep []string) error {
	if len(keep) == 0 {
		// From here on the start attaches to no other hook.
		if _, err := xdp.Release(pinDir, xdp.ReleaseOptions{Held: true}); err != nil {
			return translate(err)
		}
	}

	// The start may be pinning a hook right now, so the first attempt can miss one.
	var err error
	for range 3 {
		if _, err = xdp.Release(pinDir, xdp.ReleaseOptions{Keep: keep, Own: true}); err == nil {
			break
		}
	}
	return translate(err)
}

// Detach takes the programs of a process off their hooks, even while it runs or hangs. The process does not attach them again
// before its next start. It returns the number of programs.
func Detach(pinDir string) (programs int, err error) {
	done, err := xdp.Release(pinDir, xdp.ReleaseOptions{Held: true})
	return done.Programs, translate(err)
}

// OtherBuild reports whether programs of another build are pinned to hooks.
func OtherBuild(pinDir string) (bool, error) {
	is, err := xdp.OtherBuild(pinDir)
	return is, translate(err)
}

// Remove is Release of all pins at once, for somebody who asks for it. It returns the numbers of programs and pins.
func Remove(pinDir string) (programs, pins int, err error) {
	done, err := xdp.Release(pinDir, xdp.ReleaseOptions{})
	return done.Programs, done.Pins, translate(err)
}
