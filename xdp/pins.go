package xdp

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Repin makes missing pins again, from the descriptors of this process. Pins get lost, for example, when somebody removes them or
// unmounts the bpffs. lost reports whether pins were missing. After an error they still are.
func (dp *Datapath) Repin() (lost bool, err error) {
	if err := dp.enter(); err != nil {
		return false, err
	}
	defer dp.mu.Unlock()
	return dp.repin()
}

// pin is a map or a link, with the name of its pin.
type pin struct {
	name   string
	object interface {
		Pin(path string) error
		Unpin() error
	}
}

// pins lists all pins that should exist. The meta map comes last, so if its pin exists, all do.
func (dp *Datapath) pins() []pin {
	var all []pin
	for _, h := range dp.hooks {
		if h.pin != "" {
			all = append(all, pin{filepath.Base(h.pin), h.link})
		}
	}
	maps := dp.maps.all
	if dp.sets.memory != nil {
		maps = append([]*sharedMap{dp.sets.memory}, maps...)
	}
	for _, m := range maps {
		all = append(all, pin{m.name, m.m})
	}
	return all
}

func (dp *Datapath) repin() (lost bool, err error) {
	if dp.dir == "" {
		return false, nil
	}

	here := dp.inPlace()
	there := make(map[string]bool)
	if here {
		// A listing takes three system calls. To check each pin would take one per hook.
		names, err := list(dp.lock)
		if err != nil {
			return false, err
		}
		for _, n := range names {
			there[n] = true
		}
	}
	var gone []pin
	for _, p := range dp.pins() {
		if !there[p.name] {
			gone = append(gone, p)
		}
	}
	if len(gone) == 0 {
		return false, nil
	}

	if !here {
		moved, err := dp.moveIn()
		if err != nil {
			return true, err
		}
		old := dp.lock
		dp.lock = moved
		defer func() { err = errors.Join(err, unpinAll(old), old.Close()) }() // old may have been moved, with its pins
	}
	for _, p := range gone {
		// The object still believes in its old pin. Without Unpin, Pin would do nothing.
		path := filepath.Join(dp.dir, p.name)
		if err := errors.Join(p.object.Unpin(), p.object.Pin(path)); err != nil {
			return true, fmt.Errorf("pinning %s again: %w", path, explain(err))
		}
	}
	dp.log.Warn("pins were gone: pinned again", "dir", dp.dir, "pins", len(gone))
	return true, nil
}

// inPlace reports whether the path of the pins still leads to the directory locked by this process.
func (dp *Datapath) inPlace() bool {
	found, err := os.Stat(dp.dir)
	if err != nil {
		return false
	}
	locked, err := dp.lock.Stat()
	return err == nil && os.SameFile(found, locked)
}

// moveIn creates and locks a new directory at the path of the pins. It refuses a directory with files, because these belong to
// another instance, which may have ended since.
func (dp *Datapath) moveIn() (*os.File, error) {
	lock, err := dp.lockPins()
	if err != nil {
		return nil, err
	}
	names, err := lock.Readdirnames(1)
	if err != nil && !errors.Is(err, io.EOF) {
		lock.Close()
		return nil, fmt.Errorf("listing %s: %w", dp.dir, err)
	}
	if len(names) > 0 {
		lock.Close()
		return nil, fmt.Errorf("pinning in %s again: %w: another instance made %s there; stop that instance, then: flowtally clean --pin-dir %s",
			dp.dir, ErrInUse, names[0], dp.dir)
	}
	return lock, nil
}

// unpin removes a pin from an open directory, even if somebody has moved the directory.
func unpin(dir *os.File, name string) error {
	if err := unix.Unlinkat(int(dir.Fd()), name, 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("unpinning %s: %w", filepath.Join(dir.Name(), name), explain(err))
	}
	return nil
}

// list lists an open directory.
func list(dir *os.File) ([]string, error) {
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("listing %s: %w", dir.Name(), err)
	}
	names, err := dir.Readdirnames(-1)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // somebody removed the directory, which was empty
	}
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", dir.Name(), err)
	}
	return names, nil
}

// unpinAll removes all pins, that of the meta map first. Without it, the next process treats the others as leftovers.
func unpinAll(dir *os.File) error {
	names, err := list(dir)
	if err != nil {
		return err
	}
	errs := []error{unpin(dir, "meta")}
	for _, n := range names {
		if isOurPin(n) {
			errs = append(errs, unpin(dir, n))
		}
	}
	return errors.Join(errs...)
}
