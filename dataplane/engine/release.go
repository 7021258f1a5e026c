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

// releasePatience is how long the pins of a killed process may still be locked. The kernel closes its files before its
// parent learns of its end, but for those that a system call of another thread holds.
const releasePatience = 2 * time.Second

// releaseMain removes what another process has left, and returns the exit code of this one.
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

// release removes leavings by their paths: it loads no program and reads no rule.
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

// Exit is what a process with an instance in it calls before it ends without closing the instance.
type Exit struct {
	cfg    dataplane.Config
	before []string
	known  bool
}

// PrepareExit looks at what there is before New starts an instance of this configuration.
func PrepareExit(cfg dataplane.Config) Exit {
	x := Exit{cfg: cfg}
	x.before, x.known = xdp.Left(cfg.PinDir())
	return x
}

// Release takes what the instance has attached off its hooks and removes the pins, whatever the instance is doing. With
// xdp.keep_pins a started instance keeps everything, and one that is starting what it has found.
func (x Exit) Release(started bool) error {
	if !x.known || x.cfg.XDP.KeepPins && started {
		return nil
	}
	x.cfg.XDP.PinDir = x.cfg.PinDir()
	l := leavingsOf(x.cfg, x.before)
	return xdp.ReleaseOwn(l.Pins, l.Keep)
}

// undoStart removes what a start that has failed leaves in the kernel, where before are the pins that it found.
func undoStart(cfg dataplane.Config, before []string) error {
	if _, known := xdp.Left(cfg.XDP.PinDir); !known {
		return nil
	}
	if err := release(leavingsOf(cfg, before)); err != nil {
		return fmt.Errorf("removing what the start left: %w", err)
	}
	return nil
}

// leavingsOf is what a start that has failed may leave, where before are the pins that it found. A start that keeps pins
// leaves what it found and no more.
func leavingsOf(cfg dataplane.Config, before []string) hosted.Leavings {
	l := hosted.Leavings{Pins: cfg.XDP.PinDir}
	if cfg.XDP.KeepPins && slices.Contains(before, "meta") {
		l.Keep = before
	}
	return l
}
