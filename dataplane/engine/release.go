package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/internal/hosted"
	"github.com/flowtally/flowtally/shm"
)

// releasePatience is how long we wait for the lock of a killed process on its pins. The kernel closes the files of a process before
// its parent learns of its end, except a file that another thread has in a system call.
const releasePatience = 2 * time.Second

// releaseMain removes what a dead process has left attached and pinned. It returns the exit code of this process.
func releaseMain(text string) int {
	l, err := hosted.Parse(text)
	if err == nil {
		err = release(l)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// release removes leavings by their paths alone. It loads no program and reads no rule, so it works beside broken pins.
func release(l hosted.Leavings) error {
	var errs []error
	if l.Pins != "" {
		errs = append(errs, xdp.Release(l.Pins, l.Keep, releasePatience))
	}
	if l.Mirror != "" {
		if err := shm.Remove(l.Mirror); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Exit cleans up for a process that ends without closing its instance.
type Exit struct {
	cfg    dataplane.Config
	before []string
	known  bool
}

// PrepareExit notes which pins exist. Callers call it before New, with the same configuration.
func PrepareExit(cfg dataplane.Config) Exit {
	x := Exit{cfg: cfg}
	x.before, x.known = xdp.Left(cfg.PinDir())
	return x
}

// Release detaches the programs of the instance and removes its pins, whatever the instance is doing. With xdp.keep_pins, a started
// instance keeps all of them, and a starting one keeps the pins that PrepareExit noted.
func (x Exit) Release(started bool) error {
	if !x.known || x.cfg.XDP.KeepPins && started {
		return nil
	}
	x.cfg.XDP.PinDir = x.cfg.PinDir()
	l := leavingsOf(x.cfg, x.before)
	return xdp.ReleaseOwn(l.Pins, l.Keep)
}

// undoStart removes from the kernel what a failed start has left. before are the pins from before the start.
func undoStart(cfg dataplane.Config, before []string) error {
	if _, known := xdp.Left(cfg.XDP.PinDir); !known {
		return nil
	}
	if err := release(leavingsOf(cfg, before)); err != nil {
		return fmt.Errorf("removing what the start left: %w", err)
	}
	return nil
}

// leavingsOf returns what may be removed after a failed start. before are the pins from before the start: with xdp.keep_pins those
// stay.
func leavingsOf(cfg dataplane.Config, before []string) hosted.Leavings {
	l := hosted.Leavings{Pins: cfg.XDP.PinDir}
	if cfg.XDP.KeepPins && slices.Contains(before, "meta") {
		l.Keep = before
	}
	return l
}
