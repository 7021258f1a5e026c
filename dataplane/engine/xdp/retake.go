package xdp

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/xdp"
)

// lostHooks reports whether a hook has been lost since we attached to it. It leaves out refusing interfaces: checkAll
// tries those every 2 s, and 20 ms would be too often.
func (h *hooks) lostHooks() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	return h.rules.Held() < len(h.held) || slices.ContainsFunc(h.interfaces, h.lacksHook)
}

// lacksHook reports whether an interface lacks a hook, although it has not refused it.
func (h *hooks) lacksHook(i dataplane.Interface) bool {
	return h.missing[i.Name] == nil && !h.complete(i)
}

// checkAll checks every missing interface, and every one without a hook it needs. With all it checks the others too, and lists the interfaces
// anew, because events may have been lost.
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

	full := false // no number is left for another interface, so trying more of them is in vain
	checked := false
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
	if h.retake() {
		checked = true
	}
	if checked {
		h.refresh()
	}
}

// checkInterface attaches to an interface again. If the interface is gone, it detaches from the link of that name, and how
// completes "interface NAME" in the condition. Callers must call refresh afterwards.
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
		switch { // a lost hook is only worth a debug line: each of its flows sends an event
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

// retake moves interfaces from TCX to XDP when another program has left the XDP hook. It reports whether it has tried.
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

// checkPins pins again what has lost its pin. The condition stays until the next checkPins even after success: somebody who reads
// the conditions now and then should learn of the loss.
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
