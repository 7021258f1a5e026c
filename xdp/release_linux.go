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

	"github.com/flowtally/flowtally/internal/trust"
	"github.com/flowtally/flowtally/xdp/dispatcher"
)

// Release detaches the programs of an instance and removes its pins. dir is the directory of the pins. If it does not exist, Release
// does nothing. The error is ErrInUse if a process has locked the pins, unless o.Held or o.Own is set.
func Release(dir string, o ReleaseOptions) (done Released, err error) {
	f, err := openTrusted(dir)
	if errors.Is(err, os.ErrNotExist) {
		return done, nil
	}
	if err != nil {
		return done, err
	}
	defer f.Close()
	if !onBPFFS(f) {
		return done, nil // files outside of a bpffs are no pins, whatever their names
	}

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
	if o.Held { // mark first, or a live process would attach its programs again
		errs = append(errs, markDetached(dir, names))
	}
	done.Programs, err = detachAll(dir, names, o.Keep)
	errs = append(errs, err)

	// Remove the pin of the meta map first. If this process dies in between, the next Open treats the other pins as leftovers.
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
	}
	return done, errors.Join(errs...)
}

// detachAll detaches the programs of pinned links, except those in keep. If keep is empty, it also detaches components from libxdp
// dispatchers. It cannot select components by interface, because their pins do not name it.
func detachAll(dir string, names, keep []string) (programs int, err error) {
	var errs []error
	if len(keep) == 0 && slices.Contains(names, "counters") {
		n, err := leaveDispatchers(filepath.Join(dir, "counters"))
		programs += n
		errs = append(errs, err)
	}
	for _, name := range names {
		if !isLinkPin(name) || slices.Contains(keep, name) {
			continue
		}
		attached, err := detachPinned(filepath.Join(dir, name))
		if attached {
			programs++
		}
		errs = append(errs, err)
	}
	return programs, errors.Join(errs...)
}

// evict detaches programs of another build when Open fails. The maps stay pinned, with their counts.
func evict(lock *os.File, dir string) (programs int, err error) {
	names, err := PinsIn(dir)
	if err != nil {
		return 0, fmt.Errorf("listing %s: %w", dir, explain(err))
	}
	programs, err = detachAll(dir, names, nil)
	for _, name := range names {
		if isLinkPin(name) {
			err = errors.Join(err, unpin(lock, name))
		}
	}
	return programs, err
}

// OtherBuild reports whether the pins in a directory keep programs of another build attached.
func OtherBuild(dir string) (bool, error) {
	names, err := PinsIn(dir)
	if err != nil || !slices.ContainsFunc(names, isLinkPin) || !slices.Contains(names, "meta") {
		return false, err
	}
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, "meta"), nil)
	if err != nil {
		return false, fmt.Errorf("opening pinned map %s/meta: %w", dir, explain(err))
	}
	defer m.Close()
	if m.Type() != ebpf.Array || m.ValueSize() < 8*metaHeader {
		return false, fmt.Errorf("opening pinned map %s/meta: %w: not a map of flowtally; to remove it: flowtally clean --pin-dir %s",
			dir, ErrIncompatible, trust.Quote(dir))
	}
	s := &sharedMap{name: "meta", m: hostMap{m}}
	if err := s.mmap(); err != nil {
		return false, err
	}
	defer unix.Munmap(s.mem)
	g, err := geometryOf(s.words)
	if errors.Is(err, ErrIncompatible) {
		return true, nil
	}
	if err != nil || int(m.ValueSize()) != metaBytes(g) {
		return false, err
	}
	object := metaOf(s.words, g).object()
	return object != 0 && object != objectHash(), nil // 0 while programs are being exchanged
}

// metaFirst sorts the pin of the meta map before all others.
func metaFirst(name string) int {
	if name == "meta" {
		return 0
	}
	return 1
}

// lockWithin locks a directory of pins. It retries for a while, because an ending process may still have the lock.
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

// detachPinned detaches the program of a pinned link. Removing the pin would not do if a process has the link open.
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

// leaveDispatchers detaches the components that use the pinned map of counters.
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

// markDetached makes the detachedPin. Without a meta map there is no instance to mark.
func markDetached(dir string, names []string) error {
	if !slices.Contains(names, "meta") || slices.Contains(names, detachedPin) {
		return nil
	}
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, "meta"), nil)
	if err != nil {
		return fmt.Errorf("marking the instance as detached: %w", explain(err))
	}
	defer m.Close()
	mark, err := m.Clone() // a second Pin on m would move its first pin
	if err != nil {
		return fmt.Errorf("marking the instance as detached: %w", err)
	}
	defer mark.Close()
	if err := mark.Pin(filepath.Join(dir, detachedPin)); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("marking the instance as detached: %w", explain(err))
	}
	return nil
}
