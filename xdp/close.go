package xdp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Close lets go of everything. What is pinned stays: programs go on counting,
// and the next Open takes them up; without pins they are detached. Reads that
// are under way end first, later calls answer ErrClosed. Idempotent.
func (rs *RuleSet) Close() error { return rs.end(false) }

// Destroy detaches the programs, removes the pins and closes. Idempotent; after
// Close it does nothing.
func (rs *RuleSet) Destroy() error { return rs.end(true) }

func (rs *RuleSet) end(destroy bool) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.life.Lock()
	defer rs.life.Unlock()
	if rs.closed {
		return nil
	}
	rs.closed = true
	var errs []error
	if destroy {
		for _, h := range rs.hooks {
			errs = append(errs, rs.drop(h))
		}
		if rs.dir != "" {
			errs = append(errs, unpinAll(rs.dir))
			if err := os.Remove(rs.dir); err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, fmt.Errorf("removing %s: %w", rs.dir, err))
			}
		}
	}
	return errors.Join(append(errs, rs.release())...)
}

// release closes what is open. The lock goes last.
func (rs *RuleSet) release() error {
	var errs []error
	for k, h := range rs.hooks {
		errs = append(errs, h.close())
		delete(rs.hooks, k)
	}
	if rs.maps != nil {
		errs = append(errs, rs.maps.close())
	}
	if rs.grace != nil {
		rs.grace.close()
	}
	if rs.lock != nil {
		errs = append(errs, rs.lock.Close())
		rs.lock = nil
	}
	return errors.Join(errs...)
}

// unpinAll removes the pins of a directory, the meta map's first: without it the others are leftovers.
func unpinAll(dir string) error {
	names := []string{"meta", "counters", "slots", "entries", "ranks"}
	if list, err := os.ReadDir(dir); err == nil {
		for _, e := range list {
			if strings.HasPrefix(e.Name(), "link-") {
				names = append(names, e.Name())
			}
		}
	}
	for _, n := range names {
		if err := os.Remove(filepath.Join(dir, n)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("unpinning %s: %w", n, err)
		}
	}
	return nil
}
