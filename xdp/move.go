package xdp

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
)

// move moves the ingress of an interface between XDP and TCX: it attaches the new program, and then detaches the old one.
//
// A packet that passes meanwhile is counted by both. The other order would leave a moment without a program, in which the
// packets of flows that drop reach the host, and in which another program may take the hook. A refused program would leave
// the interface without any.
//
// The gap of the hook is noted first, so that the next process declares a move that a kill has ended.
func (rs *RuleSet) move(old *hook, ifi *net.Interface, mode string, last bool) (*hook, error) {
	at := old.site.in(mode)
	failed := func(err error) (*hook, error) {
		return nil, fmt.Errorf("moving %s from %s to %s: %w", ifi.Name, old.mode, mode, err)
	}
	if at.tcx {
		if err := rs.load.tcxIngressSupported(ifi.Name); err != nil {
			return failed(err)
		}
	}
	p, err := rs.loadFor(rs.constants, at)
	if err != nil {
		return failed(err)
	}
	h := &hook{site: at, name: old.name, ifindex: old.ifindex, mode: mode, pin: rs.pinPath(at), again: true, moved: true, prog: p}

	r := rs.meta.port(at.port)
	gap := r.gap(at.hook)
	noted := *gap
	*gap = 1 // until Declared
	rs.step("noted")
	if at.slot { // it outlives a process that dies behind attachLink
		r.setHook(at, h.ifindex, mode)
	}
	if h.link, err = rs.attachLink(p, ifi.Index, at, mode, last); err != nil {
		r.setHook(old.site, old.ifindex, old.mode)
		*gap = noted
		return failed(errors.Join(refusal(err, ifi, at.hook, mode), h.close()))
	}
	rs.step("attached")
	if !at.tcx {
		rs.passed()
	}
	if old.slot { // which the dispatcher may refuse, unlike a link
		if err := old.detach(); err != nil {
			old.moved = true
			return failed(errors.Join(err, h.detach(), h.close()))
		}
	}
	rs.replace(old, h)
	if at.tcx {
		rs.passed()
	}
	rs.log.Info("moved", "interface", h.name, "from", old.mode, "to", h.mode)
	return h, nil
}

// passed waits until the packets between the hooks of XDP and of TCX have passed the second one: both run within one
// softirq. To XDP it comes before the old program goes, which drops the packets that the new one has not seen. To TCX it
// comes afterwards: the last packets that both count come before the caller declares the move.
func (rs *RuleSet) passed() {
	if err := rs.wait(); err != nil {
		rs.log.Warn("waiting for a grace period", "error", err)
	}
}

// replace makes h the hook in the place of old, also in the pins, and detaches old. Without its pin, old ends with this
// process: a kill at any step leaves one program, or none. In a move to a dispatcher it can leave both until the next start,
// because a place there outlives the process.
func (rs *RuleSet) replace(old, h *hook) {
	var errs []error
	pins := rs.dir != "" && rs.inPlace() // else Repin makes the pin
	if pins && old.pin != "" {
		errs = append(errs, unpin(rs.lock, filepath.Base(old.pin)))
	}
	rs.step("unpinned")
	rs.meta.port(h.port).setHook(h.site, h.ifindex, h.mode)
	rs.step("recorded")
	if pins && h.pin != "" {
		errs = append(errs, h.link.Pin(h.pin))
	}
	rs.step("pinned")
	rs.hooks[h.hookKey] = h
	errs = append(errs, old.detach(), old.close())
	rs.step("detached")
	if err := errors.Join(errs...); err != nil {
		rs.log.Warn("replacing a hook", "interface", h.name, "from", old.mode, "to", h.mode, "error", err)
	}
}

// step is where a test may end the process.
func (rs *RuleSet) step(name string) {
	if rs.steps != nil {
		rs.steps(name)
	}
}
