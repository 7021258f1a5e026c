package xdp

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
)

// move moves the ingress of an interface between XDP and TCX. It attaches the new program before it detaches the old one.
//
// So both count the packets of the time between, which is an outage. The other order would be worse: for a moment, packets of
// dropping flows would reach the host, and another program could take the hook; and after a refusal the interface would have
// no program. The outage begins first, so that the next process knows of it after a kill.
func (dp *Datapath) move(old *hook, ifi *net.Interface, mode string, last bool) (*hook, error) {
	at := old.site.in(mode)
	failed := func(err error) (*hook, error) {
		return nil, fmt.Errorf("moving %s from %s to %s: %w", ifi.Name, old.mode, mode, err)
	}

	// What can be refused without an outage comes first.
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

	if at.component { // libxdp's pins keep it if this process dies behind attachLink, so record it ahead
		r.setHook(at, h.ifindex, mode)
	}
	if h.link, err = dp.attachLink(p, ifi.Index, at, mode, last); err != nil {
		r.setHook(old.site, old.ifindex, old.mode)
		dp.ledger.revoke(at.hookKey)
		return failed(errors.Join(dp.refusal(err, ifi, at.hook, mode), h.close()))
	}
	dp.step("attached")

	if !at.tcx { // the old program still drops packets that came before the new one
		dp.awaitPassed()
	}
	if old.component { // unlike a link, a dispatcher may refuse to let its component go
		if err := old.detach(); err != nil {
			err = errors.Join(err, h.detach(), h.close())
			dp.ledger.cover(at.hookKey, old.ifindex) // both have counted
			return failed(err)
		}
	}
	dp.replace(old, h)
	if at.tcx { // the outage ends behind the last packet that both count
		dp.awaitPassed()
	}
	dp.ledger.cover(at.hookKey, h.ifindex)
	dp.log.Info("moved", "interface", h.name, "from", old.mode, "to", h.mode)
	return h, nil
}

// awaitPassed waits until the packets between the hooks of XDP and TCX have passed both. Both hooks run within one softirq,
// so a grace period is enough.
func (dp *Datapath) awaitPassed() {
	if err := dp.wait(); err != nil {
		dp.log.Warn("waiting for a grace period", "error", err)
	}
}

// replace puts h in the place of old, also in the pins, and detaches old. It unpins old first: then old ends with this process,
// and a kill at any step leaves one program or none. A component outlives the process, so a kill in a move to a dispatcher
// can leave both until the next start.
func (dp *Datapath) replace(old, h *hook) {
	var errs []error
	pins := dp.dir != "" && dp.inPlace() // else Repin makes the pin
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

// step lets a test end the process at a step of a move.
func (dp *Datapath) step(name string) {
	if dp.onStep != nil {
		dp.onStep(name)
	}
}
