package xdp

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/xdp"
)

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
