package xdp

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
)

// drain is how long a packet may take from the hook of XDP to the one of TCX. Both run within one softirq, and a grace period
// passes before. The exceptions are packets that wait to be merged (GRO) or for another CPU (RPS).
const drain = 100 * time.Millisecond

// move moves the ingress of an interface between XDP and TCX, so that each packet is counted once. While both programs
// are attached, the one of XDP marks the packets that it has counted (flowtally_xdp_mark), and the one of TCX leaves
// them out:
//
//	XDP to TCX: exchange XDP's program for the marking one; drain; attach TCX; detach XDP
//	TCX to XDP: attach the marking program; drain; detach TCX; exchange the marking program for the ordinary one
//
// Between the drain and the last step every packet that reaches TCX without a mark was not counted. A driver that gives
// packets no metadata (bpf_xdp_adjust_meta) leaves them to TCX: some of them are not counted, and the hook has the number
// of all. After an error the interface is counted as before.
func (rs *RuleSet) move(old *hook, ifi *net.Interface, mode string, last bool) (*hook, error) {
	at := old.site
	at.tcx, at.slot = mode == modeTCX, mode == modeDispatcher
	feature := func(err error) error { return fmt.Errorf("moving %s from %s to %s: %w", ifi.Name, old.mode, mode, err) }
	if at.tcx {
		if err := rs.load.tcxIngressSupported(ifi.Name); err != nil {
			return nil, feature(err)
		}
	}
	xdpSite := site{hookKey: at.hookKey, layer3: at.layer3, slot: at.slot || old.slot}
	marking, err := rs.load.named(rs.constants, xdpSite, flowtallyProgFlowtallyXdpMark)
	if err != nil {
		return nil, feature(err)
	}
	plain, err := rs.loadFor(rs.constants, at)
	if err != nil {
		marking.Close()
		return nil, feature(err)
	}
	h := &hook{site: at, name: old.name, ifindex: old.ifindex, mode: mode, pin: rs.pinPath(at), again: true, prog: plain}
	// The next process exchanges all programs if this one dies before the end.
	rs.meta.clearLoaded()
	before, gap := rs.unmarked(), rs.meta.port(at.port).gap(at.hook)
	had := *gap
	*gap = 1 // a process that dies may leave the marking program alone
	if at.tcx {
		err = rs.moveBehind(old, h, ifi, marking, last)
	} else {
		err = rs.moveBefore(old, h, ifi, marking)
	}
	rs.meta.setLoaded(objectHash(), rs.constants)
	for _, o := range rs.hooks {
		if o.marking { // the next process is to exchange it
			rs.meta.clearLoaded()
		}
	}
	old.unmarked += rs.unmarked() - before // they count for the hook that stays
	h.unmarked = old.unmarked
	if h.unmarked == 0 && !old.marking && !h.marking {
		*gap = had
	}
	if err != nil {
		return nil, feature(err)
	}
	rs.log.Info("moved", "interface", h.name, "from", old.mode, "to", h.mode)
	return h, nil
}

// unmarked returns how many packets the marking programs could not mark. A process that dies in a move leaves its number.
func (rs *RuleSet) unmarked() uint64 {
	return atomic.LoadUint64(&rs.maps.counters.words[rs.g.counterBytes()/8+1])
}

// moveBehind moves from XDP to TCX.
func (rs *RuleSet) moveBehind(old, h *hook, ifi *net.Interface, marking *ebpf.Program, last bool) error {
	ordinary := old.prog
	old.prog = nil // update would close it
	if err := old.update(marking); err != nil {
		old.prog = ordinary
		return errors.Join(err, marking.Close(), h.prog.Close())
	}
	rs.drained()
	var err error
	if h.link, err = rs.attachLink(h.prog, ifi.Index, h.site, h.mode, last); err != nil {
		err = refusal(err, ifi, h.hook, h.mode)
		rs.putBack(old, ordinary)
		return errors.Join(err, h.close())
	}
	if old.slot { // which the dispatcher may refuse, unlike a link
		if err := old.detach(); err != nil {
			rs.putBack(old, ordinary)
			return errors.Join(err, h.close())
		}
	}
	if ordinary != nil {
		ordinary.Close()
	}
	rs.replace(old, h)
	return nil
}

// putBack gives a hook that has the marking program its ordinary one again, which is loaded if it is nil. If that fails,
// the marking program stays until take calls putBack again. It counts as well, except the packets to which the driver gives no metadata.
func (rs *RuleSet) putBack(h *hook, ordinary *ebpf.Program) {
	var err error
	if ordinary == nil {
		ordinary, err = rs.loadFor(rs.constants, h.site)
	}
	if err == nil {
		if err = h.update(ordinary); err == nil {
			return
		}
		ordinary.Close()
	}
	h.marking = true
	rs.log.Warn("exchanging the marking program", "interface", h.name, "error", err)
}

// moveBefore moves from TCX to XDP.
func (rs *RuleSet) moveBefore(old, h *hook, ifi *net.Interface, marking *ebpf.Program) error {
	if h.slot { // it outlives a process that dies before replace
		rs.meta.port(h.port).setHook(h.site, h.ifindex, h.mode)
	}
	l, err := rs.attachLink(marking, ifi.Index, h.site, h.mode, false)
	if err != nil {
		rs.meta.port(h.port).setHook(old.site, old.ifindex, old.mode)
		return errors.Join(refusal(err, ifi, h.hook, h.mode), marking.Close(), h.prog.Close())
	}
	ordinary := h.prog
	h.link, h.prog = l, marking
	rs.drained()
	rs.replace(old, h)
	rs.putBack(h, ordinary)
	return nil
}

// drained waits until the packets that have passed the hook of XDP before have passed the one of TCX.
func (rs *RuleSet) drained() {
	if err := rs.wait(); err != nil {
		rs.log.Warn("waiting for a grace period", "error", err)
	}
	time.Sleep(drain)
}

// replace makes h the hook in the place of old, also in the pins, and detaches old.
func (rs *RuleSet) replace(old, h *hook) {
	rs.meta.port(h.port).setHook(h.site, h.ifindex, h.mode)
	var errs []error
	if rs.dir != "" && rs.inPlace() { // else Repin makes the pin
		if old.pin != "" {
			errs = append(errs, unpin(rs.lock, filepath.Base(old.pin)))
		}
		if h.pin != "" {
			errs = append(errs, h.link.Pin(h.pin))
		}
	}
	rs.hooks[h.hookKey] = h
	errs = append(errs, old.detach(), old.close())
	if err := errors.Join(errs...); err != nil {
		rs.log.Warn("replacing a hook", "interface", h.name, "from", old.mode, "to", h.mode, "error", err)
	}
}
