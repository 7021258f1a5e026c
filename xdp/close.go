package xdp

import (
	"errors"
	"fmt"
	"os"
)

// Close closes every descriptor. With pins, programs count on, and the next Open adopts them. Without pins they are detached.
//
// Close makes missing pins again first. If that fails, the programs whose pins are missing are detached, and the error says
// so. It waits for reads that are under way. Later calls of any method return ErrClosed, and Close is idempotent.
func (rs *RuleSet) Close() error { return rs.end(false) }

// Destroy detaches the programs, removes the pins and closes every descriptor. The error names a program that is still
// attached. Destroy is idempotent, and does nothing behind Close.
func (rs *RuleSet) Destroy() error { return rs.end(true) }

// end is Destroy, or Close.
func (rs *RuleSet) end(destroy bool) error {
	rs.changes.Lock()
	defer rs.changes.Unlock()
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.reads.Lock()
	defer rs.reads.Unlock()
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
			errs = append(errs, unpinAll(rs.lock))
			if rs.inPlace() { // else the path leads to a directory of somebody else
				errs = append(errs, os.Remove(rs.dir))
			}
		}
	} else if _, err := rs.repin(); err != nil {
		errs = append(errs, fmt.Errorf("keeping the pins in %s: closing detaches the programs: %w", rs.dir, err))
	}
	return errors.Join(append(errs, rs.release())...)
}

// release closes every descriptor. The lock is last: until then no other process takes the pins.
func (rs *RuleSet) release() error {
	var errs []error
	for k, h := range rs.hooks {
		errs = append(errs, h.close())
		delete(rs.hooks, k)
	}
	rs.sharedPrograms.close()
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
