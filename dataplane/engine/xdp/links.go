package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/xdp"
)

const (
	// lookPeriod is how often everything is looked at although no link has changed: a hook that
	// another program holds can become free, TCX programs and pins come and go.
	lookPeriod = 2 * time.Second
	// detachPeriod is how often the links of programs are asked whether they are attached. The
	// kernel sends no event when one is detached by force, neither for XDP nor for TCX.
	detachPeriod = 20 * time.Millisecond
	// detachLink is the period for each link where there are many: to ask one takes 3 µs, so that
	// asking all takes half a percent of a CPU at most.
	detachLink = 600 * time.Microsecond
)

// watch follows the links until Close.
func (b *xdpBackend) watch() error {
	ctx, stop := context.WithCancel(context.Background())
	events, err := b.subscribe(ctx)
	if err != nil {
		stop()
		return err
	}
	b.stop = stop
	b.stopped.Go(func() { b.follow(ctx, events) })
	return nil
}

func (b *xdpBackend) subscribe(ctx context.Context) (events <-chan xdp.LinkEvent, err error) {
	err = b.ns.Do(func() error {
		events, err = xdp.Watch(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watching links: %w", translate(err))
	}
	return events, nil
}

// follow looks at interfaces when links change, and from time to time. The
// kernel ends a subscription that could not keep up; then everything is looked
// at, under a new one.
func (b *xdpBackend) follow(ctx context.Context, events <-chan xdp.LinkEvent) {
	tick, detached := time.NewTicker(lookPeriod), time.NewTimer(detachPeriod)
	defer tick.Stop()
	defer detached.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case ev, ok := <-events:
			if ok {
				b.onLink(ev)
				continue
			}
			events = nil
		case <-detached.C:
			lost, held := b.lost()
			detached.Reset(max(detachPeriod, time.Duration(held)*detachLink))
			if !lost {
				continue
			}
		case <-tick.C:
		}
		fresh := false
		if events == nil && ctx.Err() == nil {
			b.forgetVLANs()
			var err error
			if events, err = b.subscribe(ctx); err != nil {
				b.log.Error("watching links again", "err", err)
			}
			fresh = true
		}
		b.lookAll(fresh)
	}
}

// onLink looks at the interfaces that an event names. The event says only when:
// what is there now may be newer than it. A flap needs nothing: programs stay attached.
func (b *xdpBackend) onLink(ev xdp.LinkEvent) {
	if ev.Kind == xdp.LinkUp || ev.Kind == xdp.LinkDown {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.noteVLAN(ev)
	for _, i := range b.cfg.Interfaces {
		if ev.Name == i.Name || ev.OldName == i.Name {
			b.look(i, gone(ev, i.Name))
		}
	}
}

// gone is how an interface went, as far as the event tells.
func gone(ev xdp.LinkEvent, name string) string {
	if ev.Kind == xdp.LinkRenamed && ev.OldName == name {
		return "was renamed to " + ev.Name
	}
	return "was removed"
}

// lost says whether a hook was lost since the last look, and how many there were. A hook that
// cannot be taken again counts as lost until the look that finds that.
func (b *xdpBackend) lost() (is bool, held int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.closed && b.rules.Held() < len(b.held), len(b.held)
}

// lookAll looks at every interface that is not counted on as it should be; at
// all of them when changes may have been missed.
func (b *xdpBackend) lookAll(all bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.seeHeld()
	b.seeNeighbours()
	b.seePins()
	for _, i := range b.cfg.Interfaces {
		if all || b.missing[i.Name] != nil || !b.whole(i.Name) {
			b.look(i, "is not there")
		}
	}
}

// seePins looks for pins that are gone. They are made again at once where that is possible; the
// condition stays until the next look, so that it is seen.
func (b *xdpBackend) seePins() {
	switch lost, err := b.rules.Repin(); {
	case !lost:
		b.unpinned = ""
	case err != nil:
		b.unpinned = err.Error()
	default:
		b.unpinned = "pinned again in " + b.cfg.XDP.PinDir
	}
}

// look attaches to an interface that is there, and lets go of one that is not. how says what
// happened to it in that case.
func (b *xdpBackend) look(i dataplane.Interface, how string) {
	want := b.want(i.Name)
	if b.closed || want == (xdp.AttachOptions{}) {
		return
	}
	was, lacked := b.missing[i.Name], !b.whole(i.Name)
	err := b.attachTo(i, want)
	switch {
	case err == nil:
		delete(b.missing, i.Name)
		switch { // of a hook that was lost each flow says by an event that it was
		case was != nil:
			b.log.Info("counting on an interface again", "interface", i.Name)
		case lacked:
			b.log.Debug("took lost hooks of an interface again", "interface", i.Name)
		}
	case errors.Is(err, xdp.ErrNotFound) && was != nil && errors.Is(was, xdp.ErrNotFound):
		return // as before
	case errors.Is(err, xdp.ErrNotFound):
		b.letGo(i.Name, fmt.Errorf("interface %s %s: %w", i.Name, how, err))
	default:
		if was == nil || was.Error() != err.Error() {
			b.log.Error("attaching to an interface again", "interface", i.Name, "err", err)
		}
		b.missing[i.Name] = err
	}
	b.signal()
}

func (b *xdpBackend) signal() {
	select {
	case b.changed <- struct{}{}:
	default: // one is pending
	}
}

func (b *xdpBackend) Changed() <-chan struct{} { return b.changed }
