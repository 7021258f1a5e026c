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
func (dp *Datapath) Close() error { return dp.end(false) }

// Destroy detaches the programs, removes the pins and closes every descriptor. The error names a program that is still
// attached. Destroy is idempotent, and does nothing behind Close.
func (dp *Datapath) Destroy() error { return dp.end(true) }

// end is Destroy, or Close.
func (dp *Datapath) end(destroy bool) error {
	dp.changes.Lock()
	defer dp.changes.Unlock()
	dp.mu.Lock()
	defer dp.mu.Unlock()
	dp.reads.Lock()
	defer dp.reads.Unlock()
	if dp.closed {
		return nil
	}
	dp.closed = true

	var errs []error
	if destroy {
		for _, h := range dp.hooks {
			errs = append(errs, dp.drop(h))
		}
		if dp.dir != "" {
			errs = append(errs, unpinAll(dp.lock))
			if dp.inPlace() { // else the path leads to a directory of somebody else
				errs = append(errs, os.Remove(dp.dir))
			}
		}
	} else if _, err := dp.repin(); err != nil {
		errs = append(errs, fmt.Errorf("keeping the pins in %s: closing detaches the programs: %w", dp.dir, err))
	}
	return errors.Join(append(errs, dp.release())...)
}

// release closes every descriptor. The lock is last: until then no other process takes the pins.
func (dp *Datapath) release() error {
	var errs []error
	for k, h := range dp.hooks {
		errs = append(errs, h.close())
		delete(dp.hooks, k)
	}
	dp.sharedPrograms.close()
	if dp.maps != nil {
		errs = append(errs, dp.maps.close())
	}
	if dp.grace != nil {
		dp.grace.close()
	}
	if dp.lock != nil {
		errs = append(errs, dp.lock.Close())
		dp.lock = nil
	}
	return errors.Join(errs...)
}
