package xdp

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/xdp/dispatcher"
)

// Release takes the programs and the pins of an instance away, by the directory of its pins. ErrInUse: a process has
// them, and o.Held was not asked for. Without a directory there is nothing to do.
func Release(dir string, o ReleaseOptions) (done Released, err error) {
	f, err := openTrusted(dir)
	if errors.Is(err, os.ErrNotExist) {
		return done, nil
	}
	if err != nil {
		return done, err
	}
	defer f.Close()

	if !o.Held && !o.Own {
		if err := lockWithin(f, dir, o.Patience); err != nil {
			return done, err
		}
	}
	names, err := f.Readdirnames(-1)
	if err != nil && !errors.Is(err, io.EOF) {
		return done, fmt.Errorf("listing %s: %w", dir, explain(err))
	}

	var errs []error
	if o.Held {
		errs = append(errs, markDetached(dir, names)) // first: a live process would take the hooks again
	}
	if len(o.Keep) == 0 && slices.Contains(names, "counters") {
		n, err := leaveDispatchers(filepath.Join(dir, "counters"))
		done.Programs += n
		errs = append(errs, err)
	}
	for _, name := range names {
		if !isLinkPin(name) || slices.Contains(o.Keep, name) {
			continue
		}
		attached, err := detachPinned(filepath.Join(dir, name))
		if attached {
			done.Programs++
		}
		errs = append(errs, err)
	}

	// The meta map's pin goes before those of the other maps: without it they are leftovers.
	slices.SortFunc(names, func(a, b string) int { return metaFirst(a) - metaFirst(b) })
	for _, name := range names {
		if !isOurPin(name) || slices.Contains(o.Keep, name) || o.Held && !isLinkPin(name) {
			continue
		}
		if err := unpin(f, name); err != nil {
			errs = append(errs, err)
			continue
		}
		done.Pins++
	}
	if len(o.Keep) == 0 && !o.Held && errors.Join(errs...) == nil {
		if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("removing the directory of the pins: %w", err))
		}
		_ = os.Remove(instancesDir) // when this was the last instance in it
	}
	return done, errors.Join(errs...)
}

func metaFirst(name string) int {
	if name == "meta" {
		return 0
	}
	return 1
}

// lockWithin locks a directory of pins that a process may hold for a moment still.
func lockWithin(f *os.File, dir string, patience time.Duration) error {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("locking %s: %w", dir, err)
		case time.Now().After(end):
			return fmt.Errorf("locking %s: %w", dir, ErrInUse)
		}
	}
}

// detachPinned takes the program of a pinned link off its hook. The pin alone would do, but for a process that holds the
// link too.
func detachPinned(path string) (attached bool, err error) {
	l, err := link.LoadPinnedLink(path, nil)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("opening pinned link %s: %w", path, explain(err))
	}
	defer l.Close()
	ifindex, _ := linkIndex(l)
	if err := l.Detach(); err != nil {
		return ifindex != 0, fmt.Errorf("detaching pinned link %s: %w", path, explain(err))
	}
	return ifindex != 0, nil
}

// leaveDispatchers empties the places that programs of the pinned counters have in libxdp dispatchers.
func leaveDispatchers(counters string) (int, error) {
	m, err := ebpf.LoadPinnedMap(counters, nil)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("opening pinned map %s: %w", counters, explain(err))
	}
	defer m.Close()
	return dispatcher.LeaveAll(m)
}

// markDetached pins the meta map a second time. Without a meta map no process counts by these pins.
func markDetached(dir string, names []string) error {
	if !slices.Contains(names, "meta") || slices.Contains(names, detachedPin) {
		return nil
	}
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, "meta"), nil)
	if err != nil {
		return fmt.Errorf("marking the instance as detached: %w", explain(err))
	}
	defer m.Close()
	mark, err := m.Clone() // Pin would move the pin of m
	if err != nil {
		return fmt.Errorf("marking the instance as detached: %w", err)
	}
	defer mark.Close()
	if err := mark.Pin(filepath.Join(dir, detachedPin)); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("marking the instance as detached: %w", explain(err))
	}
	return nil
}
