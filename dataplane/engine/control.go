package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/control"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// grace is how long the caller of a cancelled call waits for its undo. Most calls end within it, after the current command to the
// device, and then the caller finds everything undone.
const grace = time.Second

// lock locks ctl. It waits for other control calls until ctx ends. doing describes the call in errors.
func (e *Engine) lock(ctx context.Context, doing string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	locked := e.ctl.LockUntil(ctx.Done(), e.life.Done())
	switch {
	case !e.closed() && locked:
		return nil
	case !e.closed():
		return fmt.Errorf("%s: waiting for another control call, which a device may hold up: %w", doing, ctx.Err())
	case locked:
		e.ctl.Unlock()
	}
	return dataplane.ErrClosed
}

// closed reports whether Close was called. Later calls return at once.
func (e *Engine) closed() bool { return e.life.Err() != nil }

// call runs fn with ctl held, on a goroutine of its own. So a caller can leave a slow device when its ctx ends; only the next call has
// to wait then. Close ends fn's context, too. goesOn tells a caller that leaves how fn ends without it.
func (e *Engine) call(ctx context.Context, doing, goesOn string, fn func(context.Context, *control.Commit) error) error {
	if err := e.lock(ctx, doing); err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	end := context.AfterFunc(e.life, stop)
	commit, done := control.NewCommit(e.life, doing), make(chan error, 1)
	go func() {
		defer stop()
		defer end()
		e.catalogue.Repair() // a change needs a mirror that is not damaged
		err := e.orClosed(fn(running, commit))
		if commit.IsAbandoned() {
			e.log.Warn("a call that was not waited for has ended", "call", doing, "err", err)
		}
		e.ctl.Unlock()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	patience := time.NewTimer(grace)
	defer patience.Stop()
	select {
	case err := <-done:
		return err
	case <-patience.C:
	}
	switch abandoned, kept := commit.Abandon(); {
	case !abandoned:
		return <-done
	case kept:
		return &dataplane.UnfinishedError{Cause: fmt.Errorf("%s: %w", doing, ctx.Err()), Outcome: done}
	}
	return e.orClosed(fmt.Errorf("%s: a device has not replied: %w; %s", doing, ctx.Err(), goesOn))
}

// orClosed returns err, with ErrClosed if Close may have caused it.
func (e *Engine) orClosed(err error) error {
	if err == nil || e.life.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: %w", dataplane.ErrClosed, err)
}

func names(flows []flow.Flow) []string {
	out := make([]string, len(flows))
	for i := range flows {
		out[i] = flows[i].Name
	}
	return out
}
