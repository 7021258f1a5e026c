package xdp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/xdp"
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

// follow returns the list of interfaces after an event: with the one that has come, without the one that has gone.
func (h *hooks) follow(ev links.Event, list []dataplane.Interface) []dataplane.Interface {
	switch ev.Kind {
	case links.Added:
		return h.join(ev.Name, list)
	case links.Removed:
		list = h.leave(ev.Name, list)
	case links.Renamed:
		list = h.join(ev.Name, h.leave(ev.OldName, list))
	}
	return list
}

// join adds an interface that has come, if an entry waits for it.
func (h *hooks) join(name string, list []dataplane.Interface) []dataplane.Interface {
	i, ok := h.patterns.Waiting(name)
	if _, there := findIn(list, name); !ok || there {
		return list
	}
	return append(list, i)
}

// leave removes an interface that is gone, if an entry waits for it.
func (h *hooks) leave(name string, list []dataplane.Interface) []dataplane.Interface {
	_, waits := h.patterns.Waiting(name)
	if _, there := findIn(list, name); !waits || !there {
		return list
	}
	exists := true
	if err := h.ns.Do(func() error { exists = h.ns.exists(name); return nil }); err != nil || exists {
		return list // another one of the name is there by now
	}
	return slices.DeleteFunc(list, func(i dataplane.Interface) bool { return i.Name == name })
}

// leaves ends the counting on an interface that is gone, if an entry waits for it, and reports whether it did. The caller
// calls refresh afterwards.
func (h *hooks) leaves(name string) bool {
	list := h.leave(name, slices.Clone(h.interfaces))
	if len(list) == len(h.interfaces) {
		return false
	}
	h.changeInterfaces(list)
	return true
}

// changeInterfaces replaces the list after links have changed. The caller calls refresh afterwards.
func (h *hooks) changeInterfaces(list []dataplane.Interface) {
	was := h.interfaces
	if err := h.replace(list); err != nil {
		h.log.Error("changing rules for an interface that came or went", "err", err)
		return
	}
	h.forgetOthers(was)
	h.signal()
}

// relist lists the interfaces again, after events were lost.
func (h *hooks) relist() {
	now, err := h.resolve()
	if err != nil {
		h.log.Error("following the interfaces", "err", err)
		return
	}
	h.changeInterfaces(now)
}

// forgetOthers drops the state of interfaces that are not counted on any more, and detaches their programs. The caller
// calls refresh afterwards.
func (h *hooks) forgetOthers(was []dataplane.Interface) {
	listed := make(map[string]bool, len(h.interfaces))
	for _, i := range h.interfaces {
		listed[i.Name] = true
	}
	for name := range h.asked {
		if !listed[name] {
			delete(h.asked, name)
		}
	}
	for _, m := range []map[string]error{h.missing, h.rejected} {
		for name := range m {
			if !listed[name] {
				delete(m, name)
			}
		}
	}
	for _, i := range was {
		if listed[i.Name] {
			continue
		}
		if err := h.leaveLink(i.Name); err != nil {
			h.log.Warn("detaching from an interface that is not counted on", "interface", i.Name, "err", err)
		}
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

// lostHooks reports whether a hook was lost since the last refreshHeld, or before it and behind the attaching. A hook that
// refuses is none: checkAll tries it.
func (h *hooks) lostHooks() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	return h.rules.Held() < len(h.held) || slices.ContainsFunc(h.interfaces, h.lacksHook)
}

// lacksHook reports whether an interface that refuses nothing lacks a hook.
func (h *hooks) lacksHook(i dataplane.Interface) bool {
	return h.missing[i.Name] == nil && !h.complete(i)
}

// checkAll checks every interface that is missing or lacks a hook; with all, every interface, because events
// may have been missed.
func (h *hooks) checkAll(all bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	if all {
		h.relist()
	}
	h.refresh()
	h.checkPins()
	full, checked := false, false // full: no number is left for another interface
	for _, i := range h.interfaces {
		lacksNumber := errors.Is(h.missing[i.Name], xdp.ErrFull)
		if full && lacksNumber {
			continue
		}
		if all || h.missing[i.Name] != nil || !h.complete(i) {
			h.checkInterface(i, "is not there")
			checked = true
		}
		full = full || lacksNumber && errors.Is(h.missing[i.Name], xdp.ErrFull)
	}
	if checked = h.retake() || checked; checked {
		h.refresh()
	}
}

// retake moves interfaces back to XDP whose hook another program held and has left, and reports whether it tried.
func (h *hooks) retake() (tried bool) {
	for _, i := range h.interfaces {
		if (i.Mode != "" && i.Mode != dataplane.ModeAuto) || !h.wanted(i.Name).Ingress || !h.upstream.beside.retakes(i.Name, time.Now()) {
			continue
		}
		want := h.wanted(i.Name)
		want.Retake = true
		if err := h.attachTo(i, want); err != nil {
			h.log.Warn("moving an interface from TCX to XDP", "interface", i.Name, "err", err)
		}
		tried = true
		h.signal()
	}
	return tried
}

// checkPins makes lost pins again. Its condition stays until the next checkPins, so that a watcher of conditions
// sees it.
func (h *hooks) checkPins() {
	switch lost, err := h.rules.Repin(); {
	case !lost:
		h.unpinned = ""
	case err != nil:
		h.unpinned = err.Error()
	default:
		h.unpinned = "pinned again in " + h.config.PinDir
	}
}

// checkInterface attaches to an interface that exists, and detaches from one that does not. how says why
// the interface does not exist. The caller calls refresh afterwards.
func (h *hooks) checkInterface(i dataplane.Interface, how string) {
	want := h.wanted(i.Name)
	if h.closed || want == (xdp.AttachOptions{}) {
		return
	}
	was, lacked := h.missing[i.Name], !h.complete(i)
	err := h.attachTo(i, want)
	switch {
	case err == nil:
		delete(h.missing, i.Name)
		switch { // each flow of a lost hook sends an event of its own
		case was != nil:
			h.log.Info("counting on an interface again", "interface", i.Name)
		case lacked:
			h.log.Debug("attached to lost hooks of an interface again", "interface", i.Name)
		}
	case errors.Is(err, xdp.ErrNotFound) && h.leaves(i.Name):
		return
	case errors.Is(err, xdp.ErrNotFound) && was != nil && errors.Is(was, xdp.ErrNotFound):
		return // the condition stays as it is
	case errors.Is(err, xdp.ErrNotFound):
		h.detachMissing(i.Name, fmt.Errorf("interface %s %s: %w", i.Name, how, err))
	default:
		if was == nil || was.Error() != err.Error() {
			h.log.Error("attaching to an interface again", "interface", i.Name, "err", err)
		}
		h.missing[i.Name] = err
	}
	h.signal()
}

func (h *hooks) signal() {
	select {
	case h.changed <- struct{}{}:
	default: // one is pending
	}
}
