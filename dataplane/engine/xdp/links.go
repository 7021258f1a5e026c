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

// checkPeriod is how often we look for changes without an event: another program frees a hook, TCX programs come and go, somebody
// removes pins.
const checkPeriod = 2 * time.Second

// batchSize bounds the events handled under one lock of mu. Each may attach, which takes two RCU grace periods, and
// control calls wait meanwhile.
const batchSize = 8

// watch starts the goroutines of the watcher, which run until stopWatch.
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

// watchHeld queries whether the programs are still attached, and sends to lost if one is not.
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

// watchLinks checks interfaces when links change, when watchHeld finds a lost hook, and every checkPeriod. If we read too slowly,
// the kernel ends the subscription. Then watchLinks subscribes again and checks everything, because events are lost.
func (h *hooks) watchLinks(ctx context.Context, events <-chan links.Event, lost <-chan struct{}) {
	defer h.tunnels.close()
	tick := time.NewTicker(checkPeriod)
	defer tick.Stop()
	keep := time.NewTicker(time.Hour) // often enough: 2^55 bytes in an hour are 80 Tbit/s
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

// onLinks handles an event and the waiting ones behind it. A new subscription begins with an event for each link, so hundreds
// may wait.
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

// distinct returns how many events from the first on concern different interfaces. Two events of one interface, say its removal
// and its return, must be handled one after the other.
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

// isCarrier reports whether an event is only about the carrier. Programs stay attached while a link is down.
func isCarrier(ev links.Event) bool { return ev.Kind == links.Up || ev.Kind == links.Down }

// onEach handles events of different interfaces together, because a change of the list and a refresh are costly. It takes an event
// as a hint and asks the kernel: the link may have changed again since.
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

// goneText says what became of an interface, as far as the event tells.
func goneText(ev links.Event, name string) string {
	if ev.Kind == links.Renamed && ev.OldName == name {
		return "was renamed to " + ev.Name
	}
	return "was removed"
}

// forgetLinks forgets all links before a new subscription, which lists them again.
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
