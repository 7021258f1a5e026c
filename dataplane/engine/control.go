package engine

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// control is the lock that serialises control calls. Unlike a mutex it can be waited for with a context.
type control chan struct{}

func newControl() control { return make(control, 1) }

func (c control) Lock() { c <- struct{}{} }

func (c control) Unlock() { <-c }

func (c control) TryLock() bool {
	select {
	case c <- struct{}{}:
		return true
	default:
		return false
	}
}

// grace is how long a cancelled call may take to return between two commands of a device, so that its caller finds everything undone.
const grace = time.Second

// lock takes ctl, and waits for other control calls as long as ctx lasts. doing describes the call in errors.
func (e *Engine) lock(ctx context.Context, doing string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if !e.ctl.TryLock() {
		select {
		case e.ctl <- struct{}{}:
		case <-e.life.Done():
			return dataplane.ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("%s: waiting for another control call, which a device may hold up: %w", doing, ctx.Err())
		}
	}
	if e.closed() {
		e.ctl.Unlock()
		return dataplane.ErrClosed
	}
	return nil
}

// closed reports whether Close was called. Later calls return at once.
func (e *Engine) closed() bool { return e.life.Err() != nil }

// verdict is what is decided of a call whose caller may not wait for its end: once, by
// whoever comes first.
type verdict struct {
	doing string
	life  context.Context // of the instance: a call that it ends is not kept either
	mu    sync.Mutex
	kept  bool
	long  bool // much may be left to do once it is kept
	alone bool // the caller has gone
}

// goOn says that the caller need not wait for the end of a call that is kept.
func (v *verdict) goOn() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.long = true
}

// keep says that what the call has done is to stay. The error says that nobody wants it any more:
// it has to be undone. A call without a caller who could go is kept always.
func (v *verdict) keep(ctx context.Context) error {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := cmp.Or(ctx.Err(), v.life.Err()); err != nil {
		return fmt.Errorf("%s: %w", v.doing, err)
	}
	v.kept = true
	return nil
}

// leave notes that the caller returns, because its ctx has ended; false: the call is about to return by itself.
// kept says that the changes of the call stay.
func (v *verdict) leave() (left, kept bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.alone = !v.kept || v.long
	return v.alone, v.kept
}

func (v *verdict) isAlone() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.alone
}

// call runs fn with ctl held on a goroutine of its own. So a device that takes its time over a command holds up the next
// call, and not a caller whose ctx has ended. Close ends fn's context too. goesOn says what happens to fn when no
// caller waits for it.
func (e *Engine) call(ctx context.Context, doing, goesOn string, fn func(context.Context, *verdict) error) error {
	if err := e.lock(ctx, doing); err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	end := context.AfterFunc(e.life, stop)
	v, done := &verdict{doing: doing, life: e.life}, make(chan error, 1)
	go func() {
		defer stop()
		defer end()
		e.catalogue.keep() // fn changes it
		err := e.orClosed(fn(running, v))
		if v.isAlone() {
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
	switch left, kept := v.leave(); {
	case !left:
		return <-done
	case kept:
		return nil
	}
	return e.orClosed(fmt.Errorf("%s: a device has not answered: %w; %s", doing, ctx.Err(), goesOn))
}

// orClosed returns err, with ErrClosed if Close may have caused it.
func (e *Engine) orClosed(err error) error {
	if err == nil || e.life.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: %w", dataplane.ErrClosed, err)
}

// about names the flows of a call in errors.
func about(names []string) string {
	switch len(names) {
	case 0:
		return "no flows"
	case 1:
		return fmt.Sprintf("flow %q", names[0])
	}
	return fmt.Sprintf("%d flows (%q, …)", len(names), names[0])
}

func names(flows []flow.Flow) []string {
	out := make([]string, len(flows))
	for i := range flows {
		out[i] = flows[i].Name
	}
	return out
}
