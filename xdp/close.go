package xdp

import (
	"errors"
	"fmt"
	"os"
)

// instancesDir holds the pins of the instances that name no directory of their own. It stays when the last of them ends:
// a confined process, and a unit of systemd, may write to the directory that was there when they started, and not to
// another one of its name.
const instancesDir = "/sys/fs/bpf/flowtally"

// Close closes every descriptor. With pins, programs go on counting, and the next Open adopts them;
// without pins they are detached. Close makes missing pins again first; if that fails it detaches,
// and the error says so. Running reads end first, later calls return ErrClosed. Idempotent.
func (rs *RuleSet) Close() error { return rs.end(false) }

// Destroy detaches the programs, removes the pins and closes. The error names a program that is still
// attached afterwards. Idempotent; after Close it does nothing.
func (rs *RuleSet) Destroy() error { return rs.end(true) }

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
			if rs.inPlace() { // not another one in its place
				errs = append(errs, os.Remove(rs.dir))
			}
		}
	} else if _, err := rs.repin(); err != nil {
		errs = append(errs, fmt.Errorf("keeping the pins in %s: closing detaches the programs: %w", rs.dir, err))
	}
	return errors.Join(append(errs, rs.release())...)
}

// release closes every descriptor. The lock is released last.
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
