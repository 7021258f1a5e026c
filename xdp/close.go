package xdp

import (
	"errors"
	"fmt"
	"os"
)

// Close closes every descriptor. If Options.PinDir is set, the programs keep counting, and the next Open adopts them. Otherwise
// they are detached.
//
// Close first makes missing pins again. Programs whose pins it cannot make are detached, and the error says so. Close waits
// for reads in progress. Afterwards every method returns ErrClosed. Closing twice is fine.
func (dp *Datapath) Close() error { return dp.end(false) }

// Destroy detaches the programs, removes the pins and closes every descriptor. The error names each program that could not be
// detached. After Close, or a second time, Destroy does nothing.
func (dp *Datapath) Destroy() error { return dp.end(true) }

func (dp *Datapath) end(destroy bool) error {
	dp.changes.Lock()
	defer dp.changes.Unlock()
	dp.mu.Lock()
	defer dp.mu.Unlock()
	dp.sets.life.Lock()
	defer dp.sets.life.Unlock()
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
			if dp.inPlace() { // otherwise somebody has put another directory at this path
				errs = append(errs, os.Remove(dp.dir))
			}
		}
	} else if _, err := dp.repin(); err != nil {
		errs = append(errs, fmt.Errorf("keeping the pins in %s: closing detaches the programs: %w", dp.dir, err))
	}
	return errors.Join(append(errs, dp.release())...)
}

// release closes every descriptor. It closes the lock last, so that no other process adopts the pins before.
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
	errs = append(errs, closeMemory(dp.sets.memory))
	dp.sets.memory = nil
	if dp.grace != nil {
		dp.grace.close()
	}
	if dp.lock != nil {
		errs = append(errs, dp.lock.Close())
		dp.lock = nil
	}
	return errors.Join(errs...)
}
