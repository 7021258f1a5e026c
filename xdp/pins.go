package xdp

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Repin checks whether the pins are where they were made, and makes again those that are gone
// (removed, or their file system was unmounted) from the descriptors of this process. lost
// says that some were gone. err says why they could not be made again.
func (rs *RuleSet) Repin() (lost bool, err error) {
	if err := rs.enter(); err != nil {
		return false, err
	}
	defer rs.mu.Unlock()
	return rs.repin()
}

// pin is an object of the kernel and its name in the pins' directory.
type pin struct {
	name   string
	object interface {
		Pin(path string) error
		Unpin() error
	}
}

// pins lists all pins that there should be. The meta map is last: where its pin exists, all exist.
func (rs *RuleSet) pins() []pin {
	var all []pin
	for _, h := range rs.hooks {
		if h.pin != "" {
			all = append(all, pin{filepath.Base(h.pin), h.link})
		}
	}
	for _, m := range rs.maps.all {
		all = append(all, pin{m.name, m.m})
	}
	return all
}

func (rs *RuleSet) repin() (lost bool, err error) {
	if rs.dir == "" {
		return false, nil
	}
	here := rs.inPlace()
	there := make(map[string]bool)
	if here {
		// One listing takes three system calls, and a look at each pin takes one for each hook.
		names, err := list(rs.lock)
		if err != nil {
			return false, err
		}
		for _, n := range names {
			there[n] = true
		}
	}
	var gone []pin
	for _, p := range rs.pins() {
		if !there[p.name] {
			gone = append(gone, p)
		}
	}
	if len(gone) == 0 {
		return false, nil
	}
	if !here {
		old := rs.lock
		if rs.lock, err = rs.moveIn(); err != nil {
			rs.lock = old
			return true, err
		}
		defer func() { err = errors.Join(err, unpinAll(old), old.Close()) }() // it may be elsewhere, with its pins
	}
	for _, p := range gone {
		// Unpin tells the object that its pin is gone; else Pin would find nothing to do.
		path := filepath.Join(rs.dir, p.name)
		if err := errors.Join(p.object.Unpin(), p.object.Pin(path)); err != nil {
			return true, fmt.Errorf("pinning %s again: %w", path, explain(err))
		}
	}
	rs.log.Warn("pins were gone: pinned again", "dir", rs.dir, "pins", len(gone))
	return true, nil
}

// inPlace says whether the path of the pins' directory leads to the one that is locked.
func (rs *RuleSet) inPlace() bool {
	there, err := os.Stat(rs.dir)
	if err != nil {
		return false
	}
	locked, err := rs.lock.Stat()
	return err == nil && os.SameFile(there, locked)
}

// moveIn makes and locks another directory at the path of the pins. It refuses a directory that holds
// pins: another instance, which may have ended, made them.
func (rs *RuleSet) moveIn() (*os.File, error) {
	lock, err := rs.lockPins()
	if err != nil {
		return nil, err
	}
	names, err := lock.Readdirnames(1)
	if err != nil && !errors.Is(err, io.EOF) {
		lock.Close()
		return nil, fmt.Errorf("listing %s: %w", rs.dir, err)
	}
	if len(names) > 0 {
		lock.Close()
		return nil, fmt.Errorf("pinning in %s again: %w: another instance made %s there; stop that instance, then: flowtally clean --pin-dir %s",
			rs.dir, ErrInUse, names[0], rs.dir)
	}
	return lock, nil
}

// unpin removes a pin from a directory that is open, wherever that is by now.
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
