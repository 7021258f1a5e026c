package xdp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/xdp/links"
)

// checkPeriod is how often everything is checked although no link has changed: a hook that
// another program holds can become free, TCX programs and pins come and go.
const checkPeriod = 2 * time.Second

// batchSize is the most link events that are handled at once. An attach takes two RCU grace periods, and control calls wait
// for a batch.
const batchSize = 8

// watch starts the watcher of links, which runs until stopWatch.
func (h *hooks) watch() error {
	ctx, stop := context.WithCancel(context.Background())
	events, err := h.subscribe(ctx)
	if err != nil {
		stop()
		return err
	}
	h.stop = stop
	lost := make(chan struct{})
	h.stopped.Go(func() { h.watchLinks(ctx, events, lost) })
	h.stopped.Go(func() { h.watchHeld(ctx, lost) })
	return nil
}

// watchHeld queries whether programs are still attached, while some are, and sends to lost where one is not.
func (h *hooks) watchHeld(ctx context.Context, lost chan<- struct{}) {
	defer context.AfterFunc(ctx, h.heldTicker.Kick)()
	for h.heldTicker.Wait(); ctx.Err() == nil; h.heldTicker.Wait() {
		if !h.lostHooks() {
			continue
		}
		select {
		case lost <- struct{}{}:
		case <-ctx.Done():
		}
	}
}

func (h *hooks) stopWatch() {
	defer h.heldTicker.Close()
	if h.stop != nil {
		h.stop()
		h.stopped.Wait()
	}
}

func (h *hooks) subscribe(ctx context.Context) (events <-chan links.Event, err error) {
	err = h.ns.Do(func() error {
		events, err = h.ns.watch(ctx)
		return err
	})
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("watching links: %w: %w: it takes CAP_NET_ADMIN (or root)", dataplane.ErrPermission, err)
	}
	if err != nil {
		return nil, fmt.Errorf("watching links: %w", translate(err))
	}
	return events, nil
}

// watchLinks checks interfaces when links change, and every checkPeriod. The kernel ends a subscription that
// falls behind; watchLinks then subscribes again and checks everything.
func (h *hooks) watchLinks(ctx context.Context, events <-chan links.Event, lost <-chan struct{}) {
	defer h.tunnels.close()
	tick := time.NewTicker(checkPeriod)
	defer tick.Stop()
	keep := time.NewTicker(time.Hour) // 2^55 bytes in an hour are 80 Tbit/s
	defer keep.Stop()
	for {
		select {
		case <-keep.C:
			h.rules.KeepBytes()
		case <-ctx.Done():
			return
		case ev, ok := <-events:
			if ok {
				h.onLinks(ev, events)
				continue
			}
			events = nil
		case <-lost:
		case <-tick.C:
			h.lookForTunnels()
		}
		fresh := false
		if events == nil && ctx.Err() == nil {
			h.forgetLinks()
			var err error
			if events, err = h.subscribe(ctx); err != nil {
				h.log.Error("watching links again", "err", err)
			}
			fresh = true
		}
		h.checkAll(fresh)
	}
}

// onLinks handles an event and those that wait behind it: a new subscription begins with one for each link.
func (h *hooks) onLinks(ev links.Event, more <-chan links.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()

	batch := []links.Event{ev}
	for range min(len(more), batchSize-1) {
		if ev, ok := <-more; ok {
			batch = append(batch, ev)
		}
	}
	for len(batch) > 0 {
		n := distinct(batch)
		h.onEach(batch[:n])
		batch = batch[n:]
	}
}

// distinct returns how many events from the first on name an interface that no event before them names. What happens to one
// interface is handled step by step.
func distinct(batch []links.Event) int {
	named := make(map[string]bool)
	for n, ev := range batch {
		if isCarrier(ev) {
			continue
		}
		if named[ev.Name] || ev.OldName != "" && named[ev.OldName] {
			return n
		}
		named[ev.Name] = true
		if ev.OldName != "" {
			named[ev.OldName] = true
		}
	}
	return len(batch)
}

// isCarrier reports whether an event needs no check: programs stay attached while a link is down.
func isCarrier(ev links.Event) bool { return ev.Kind == links.Up || ev.Kind == links.Down }

// onEach handles events of different interfaces. It changes the list of interfaces once, and asks once about the hooks of
// those that changed. An event is only a trigger: the state of its link may be newer.
func (h *hooks) onEach(batch []links.Event) {
	eventOf := make(map[string]links.Event)
	list := slices.Clone(h.interfaces)
	for _, ev := range batch {
		if isCarrier(ev) {
			continue
		}
		h.upstream.stacks.note(ev)
		eventOf[ev.Name] = ev
		if ev.OldName != "" {
			eventOf[ev.OldName] = ev
		}
		if !h.closed {
			list = h.follow(ev, list)
		}
	}
	if h.closed {
		return
	}

	changed := !slices.Equal(list, h.interfaces)
	if changed {
		h.changeInterfaces(list)
	}
	checked := false
	for _, i := range h.interfaces {
		if ev, ok := eventOf[i.Name]; ok {
			h.checkInterface(i, goneText(ev, i.Name))
			checked = true
		}
	}
	if checked || changed {
		h.refreshOf(func(name string) bool { _, ok := eventOf[name]; return ok })
	}
}

// goneText says how an interface went, as far as the event tells.
func goneText(ev links.Event, name string) string {
	if ev.Kind == links.Renamed && ev.OldName == name {
		return "was renamed to " + ev.Name
	}
	return "was removed"
}

// forgetLinks forgets all links ahead of a new subscription, which lists them again.
func (h *hooks) forgetLinks() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.upstream.stacks = newStacks()
}

func (h *hooks) signal() {
	select {
	case h.changed <- struct{}{}:
	default: // one is pending
	}
}
