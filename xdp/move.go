package xdp

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
)

// move moves the ingress of an interface between XDP and TCX. It attaches the new program before it detaches the old one.
//
// In between, both programs count each packet. We record that as an outage, because the other order would be worse: packets to
// be dropped would reach the host for a moment, another program could take the hook, and if the kernel refused the new program,
// the interface would have none. The outage is recorded first, so that the next process knows of it if this one is killed.
func (dp *Datapath) move(old *hook, ifi *net.Interface, mode string, last bool) (*hook, error) {
	at := old.site.in(mode)
	failed := func(err error) (*hook, error) {
		return nil, fmt.Errorf("moving %s from %s to %s: %w", ifi.Name, old.mode, mode, err)
	}

	// Everything that can fail without causing an outage comes first.
	if at.tcx {
		if err := dp.loader.tcxIngressSupported(ifi.Name); err != nil {
			return failed(err)
		}
	}
	p, err := dp.programFor(dp.constants, dp.sharedPrograms, at)
	if err != nil {
		return failed(err)
	}
	h := &hook{
		site:     at,
		name:     old.name,
		ifindex:  old.ifindex,
		mode:     mode,
		pin:      dp.pinPath(at),
		prog:     p,
		numbered: at.component || dp.named.has(at.port),
	}

	r := dp.meta.port(at.port)
	dp.ledger.begin(at.hookKey)
	dp.step("noted")

	if at.component {
		// libxdp's pins hold a component even if this process dies right after attachLink, so the record must come first.
		r.setHook(at, h.ifindex, mode)
	}
	if h.link, err = dp.attachLink(p, ifi.Index, at, mode, last); err != nil {
		r.setHook(old.site, old.ifindex, old.mode)
		dp.ledger.revoke(at.hookKey)
		return failed(errors.Join(dp.refusal(err, ifi, at.hook, mode), h.close()))
	}
	dp.step("attached")

	if !at.tcx { // packets that passed XDP before the new program was there still need the old one, which may drop them
		dp.awaitPassed()
	}
	if old.component { // detaching a component can fail, unlike detaching a link
		if err := old.detach(); err != nil {
			err = errors.Join(err, h.detach(), h.close())
			dp.ledger.cover(at.hookKey, old.ifindex) // ends the outage in which both programs counted
			return failed(err)
		}
	}
	dp.replace(old, h)
	if at.tcx { // packets counted by the old XDP program may still be on their way to TCX, where they are counted again
		dp.awaitPassed()
	}
	dp.ledger.cover(at.hookKey, h.ifindex)
	dp.log.Info("moved", "interface", h.name, "from", old.mode, "to", h.mode)
	return h, nil
}

// awaitPassed waits until the packets now between the XDP hook and the TCX hook have passed both. A packet passes both within one
// softirq, so a grace period is long enough.
func (dp *Datapath) awaitPassed() {
	if err := dp.wait(); err != nil {
		dp.log.Warn("waiting for a grace period", "error", err)
	}
}

// replace makes h the program of its hook, in the pins as well, and detaches old.
//
// It unpins old first. From then on old dies with this process, so a kill at any step leaves one program or none. The exception
// is a component, which outlives the process: a kill during a move to a dispatcher can leave both until the next start.
func (dp *Datapath) replace(old, h *hook) {
	var errs []error
	pins := dp.dir != "" && dp.inPlace() // otherwise Repin will make the pin
	if pins && old.pin != "" {
		errs = append(errs, unpin(dp.lock, filepath.Base(old.pin)))
	}
	dp.step("unpinned")

	dp.meta.port(h.port).setHook(h.site, h.ifindex, h.mode)
	dp.step("recorded")

	if pins && h.pin != "" {
		errs = append(errs, h.link.Pin(h.pin))
	}
	dp.step("pinned")

	dp.hooks[h.hookKey] = h
	errs = append(errs, old.detach(), old.close())
	dp.step("detached")
	if err := errors.Join(errs...); err != nil {
		dp.log.Warn("replacing a hook", "interface", h.name, "from", old.mode, "to", h.mode, "error", err)
	}
}

// step lets a test kill the process in the middle of a move.
func (dp *Datapath) step(name string) {
	if dp.onStep != nil {
		dp.onStep(name)
	}
}
