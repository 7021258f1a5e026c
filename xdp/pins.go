package xdp

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Repin checks whether the pins are where they were made. Pins that are gone (somebody has removed them, or unmounted their file
// system) it makes again, from the descriptors of this process. lost: some were gone. err is the reason why they still are.
func (dp *Datapath) Repin() (lost bool, err error) {
	if err := dp.enter(); err != nil {
		return false, err
	}
	defer dp.mu.Unlock()
	return dp.repin()
}

// pin is a map or a link, and the name of its pin in the directory.
type pin struct {
	name   string
	object interface {
		Pin(path string) error
		Unpin() error
	}
}

// pins lists all pins that should exist. The meta map is last: if its pin exists, all exist.
func (dp *Datapath) pins() []pin {
	var all []pin
	for _, h := range dp.hooks {
		if h.pin != "" {
			all = append(all, pin{filepath.Base(h.pin), h.link})
		}
	}
	for _, m := range dp.maps.all {
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
		// One listing takes three system calls, and a look at each pin takes one for each hook.
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
		defer func() { err = errors.Join(err, unpinAll(old), old.Close()) }() // it may be elsewhere, with its pins
	}
	for _, p := range gone {
		// Without Unpin, the object takes itself for pinned, and Pin does nothing.
		path := filepath.Join(dp.dir, p.name)
		if err := errors.Join(p.object.Unpin(), p.object.Pin(path)); err != nil {
			return true, fmt.Errorf("pinning %s again: %w", path, explain(err))
		}
	}
	dp.log.Warn("pins were gone: pinned again", "dir", dp.dir, "pins", len(gone))
	return true, nil
}

// inPlace reports whether the path of the pins leads to the directory that this process has locked.
func (dp *Datapath) inPlace() bool {
	found, err := os.Stat(dp.dir)
	if err != nil {
		return false
	}
	locked, err := dp.lock.Stat()
	return err == nil && os.SameFile(found, locked)
}

// moveIn makes and locks another directory at the path of the pins. It refuses a directory with files in it: another instance,
// which may have ended, made them.
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

// unpin removes a pin from an open directory, wherever the directory is by now.
func unpin(dir *os.File, name string) error {
	if err := unix.Unlinkat(int(dir.Fd()), name, 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("unpinning %s: %w", filepath.Join(dir.Name(), name), explain(err))
	}
	return nil
}

// list lists a directory that is open.
func list(dir *os.File) ([]string, error) {
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("listing %s: %w", dir.Name(), err)
	}
	names, err := dir.Readdirnames(-1)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // the directory was removed, and was empty then
	}
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", dir.Name(), err)
	}
	return names, nil
}

// unpinAll removes all pins, the meta map's first: without it the others are leftovers.
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
