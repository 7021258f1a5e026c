package xdp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/xdp/dispatcher"
)

// Attach puts programs on the hooks of an interface, looked up in the network namespace of the calling thread. A hook
// that this rule set holds already, in a mode that satisfies o, is left as it is; one whose interface was deleted, and
// came back with another index, is attached again. When one hook cannot be taken those attached by this call are
// detached again.
func (rs *RuleSet) Attach(ifname string, o AttachOptions) ([]Attachment, error) {
	if err := rs.enter(); err != nil {
		return nil, err
	}
	defer rs.mu.Unlock()
	ifi, dev, err := rs.interfaceByName(ifname)
	if err != nil {
		return nil, fmt.Errorf("attaching to %s: %w", ifname, err)
	}
	port, err := rs.port(ifname)
	if err != nil {
		return nil, err
	}
	var done []Attachment
	var fresh []*hook
	for _, at := range []Hook{HookIngress, HookEgress} {
		if at == HookIngress && !o.Ingress || at == HookEgress && !o.Egress {
			continue
		}
		h, isNew, rejected, err := rs.take(hookKey{port, at}, ifi, dev, o)
		if err != nil {
			for _, h := range fresh {
				rs.drop(h)
			}
			return nil, err
		}
		if isNew {
			fresh = append(fresh, h)
		}
		h.local = dev.local()
		a := rs.attachment(h)
		a.Fresh, a.Rejected = isNew, rejected
		done = append(done, a)
	}
	for _, h := range fresh {
		rs.ledger.cover(h.hookKey, h.ifindex)
	}
	return done, nil
}

// take makes sure that a hook runs our program; isNew: it did not before.
func (rs *RuleSet) take(k hookKey, ifi *net.Interface, dev device, o AttachOptions) (h *hook, isNew bool, rejected []error, err error) {
	if rs.detached() {
		return nil, false, nil, fmt.Errorf("attaching to %s: %w", ifi.Name, ErrDetached)
	}
	layer3, err := dev.layer3(k.hook)
	if err != nil {
		return nil, false, nil, fmt.Errorf("attaching to %s: %w", ifi.Name, err)
	}
	at, early := site{hookKey: k, layer3: layer3}, slices.Contains(rs.early, dev.kind)
	level := slog.LevelInfo
	if r := rs.meta.port(k.port); rs.hooks[k] == nil && r.mode(k.hook) == modeDispatcher {
		err := rs.adoptSlot(k, r) // drop could not empty it
		if h := rs.hooks[k]; h != nil {
			err = rs.drop(h)
		}
		if err != nil {
			return nil, false, nil, fmt.Errorf("attaching to %s: %w", ifi.Name, explain(err))
		}
	}
	if h := rs.hooks[k]; h != nil {
		alive, err := h.state()
		if err != nil && h.ifindex == ifi.Index { // it may count still: with a second program packets would count twice
			return nil, false, nil, fmt.Errorf("attaching to %s: %w", ifi.Name, explain(err))
		}
		if h.ifindex == ifi.Index && alive && h.layer3 == layer3 && h.isOn(dev) {
			best := rs.modes(k.hook, ifi.Index, o, early)[0]
			satisfied := satisfies(h.mode, k.hook, o.Mode)
			if best == modeGeneric && !satisfied {
				if err := rs.harmOfGeneric(dev, o); err != nil { // the hook stays as it is
					return nil, false, nil, fmt.Errorf("attaching to %s: %w", ifi.Name, err)
				}
			}
			switch {
			case h.tcx != (best == modeTCX) && (o.Retake || !satisfied):
				moved, err := rs.move(h, ifi, best, o.Last)
				if satisfied && err != nil {
					return h, false, []error{err}, nil
				}
				return moved, false, nil, err
			case satisfied:
				return h, false, nil, nil
			}
		}
		if alive || h.ifindex == ifi.Index {
			rs.ledger.begin(k)
		} else {
			rs.ledger.leave(k, false) // its interface is gone, and another one has the name
		}
		rs.drop(h)
		level = slog.LevelDebug // again
	}
	busy := false
	for _, m := range rs.modes(k.hook, ifi.Index, o, early) {
		tcx := m == modeTCX
		if busy && !tcx && m != modeDispatcher {
			continue
		}
		if tcx && k.hook == HookIngress {
			if err := errors.Join(rs.load.tcxIngressSupported(ifi.Name), rs.besideRefused(ifi, o)); err != nil {
				rejected = append(rejected, err)
				busy = busy || errors.Is(err, ErrBusy)
				continue
			}
		}
		if m == modeGeneric {
			if err := rs.harmOfGeneric(dev, o); err != nil {
				rejected = append(rejected, err)
				continue
			}
		}
		h, err := rs.attach(at.in(m), ifi, m, o.Last)
		if err == nil {
			rs.log.Log(context.Background(), level, "attached", "interface", ifi.Name, "hook", k.hook, "mode", m)
			return h, true, rejected, nil
		}
		rejected = append(rejected, err)
		if errors.Is(err, ErrPermission) && m != modeDispatcher { // which takes more than the others
			break
		}
		busy = busy || errors.Is(err, ErrBusy)
	}
	return nil, false, nil, fmt.Errorf("attaching to %s: %w", ifi.Name, errors.Join(rejected...))
}

// attach tries one mode, with its own flags: flags of 0 would choose in silence.
func (rs *RuleSet) attach(at site, ifi *net.Interface, mode string, last bool) (*hook, error) {
	k := at.hookKey
	h := &hook{site: at, name: ifi.Name, ifindex: ifi.Index, mode: mode, pin: rs.pinPath(at)}
	p, err := rs.programFor(rs.constants, rs.shared, at)
	if err != nil {
		return nil, err
	}
	h.numbered = at.slot || rs.named.has(at.port)
	r := rs.meta.port(k.port)
	was := slices.Clone(r)
	if at.slot { // it outlives a process that dies behind attachLink
		r.setHook(at, ifi.Index, mode)
	}
	if h.link, err = rs.attachLink(p, ifi.Index, at, mode, last); err != nil {
		copy(r, was)
		p.Close()
		return nil, rs.refusal(err, ifi, k.hook, mode)
	}
	h.prog = p
	r.setHook(at, ifi.Index, mode)
	switch {
	case h.pin == "":
	case !rs.inPlace(): // Repin makes this pin with the others that are gone
		rs.log.Warn("attached without a pin: the directory of the pins is gone", "interface", ifi.Name, "hook", k.hook)
	default:
		if err := h.link.Pin(h.pin); err != nil {
			return nil, errors.Join(fmt.Errorf("pinning the link of %s: %w", ifi.Name, explain(err)), h.detach(), h.close())
		}
	}
	rs.hooks[k] = h
	return h, nil
}

func (rs *RuleSet) attachLink(p *ebpf.Program, ifindex int, at site, mode string, last bool) (link.Link, error) {
	if rs.kernel != nil {
		return rs.kernel.Attach(kernelHook(ifindex, at, mode))
	}
	switch mode {
	case modeDispatcher:
		s, err := dispatcher.NewSlot(ifindex, rs.maps.counters.hostMap(), rs.wait)
		if err != nil {
			return nil, err
		}
		if err := s.Update(p); err != nil {
			return nil, errors.Join(err, s.Close())
		}
		return s, nil
	case modeNative:
		return link.AttachXDP(link.XDPOptions{Program: p, Interface: ifindex, Flags: link.XDPDriverMode})
	case modeGeneric:
		return link.AttachXDP(link.XDPOptions{Program: p, Interface: ifindex, Flags: link.XDPGenericMode})
	}
	anchor := link.Head()
	if last {
		anchor = link.Tail()
	}
	return link.AttachTCX(link.TCXOptions{Program: p, Interface: ifindex, Attach: at.attachType(), Anchor: anchor})
}

// refusal explains why a hook could not be taken, and adds the remedy.
func (rs *RuleSet) refusal(err error, ifi *net.Interface, h Hook, mode string) error {
	feature := mode + " XDP"
	if mode == modeDispatcher {
		return fmt.Errorf("taking a place in the libxdp dispatcher of %s: %w", ifi.Name, explain(err))
	}
	if mode == modeTCX {
		feature = map[Hook]string{HookIngress: "TCX ingress", HookEgress: "TCX egress"}[h]
	}
	switch {
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		return busyError(feature, ifi, rs.holders.of(ifi.Index))
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%s on %s: %w", feature, ifi.Name, explain(err))
	case errors.Is(err, ebpf.ErrNotSupported) && mode == modeTCX:
		return &probe.UnsupportedError{Feature: feature, Object: ifi.Name, Reason: "the kernel has no TCX: " + err.Error(),
			Fix: map[Hook]string{HookIngress: "use a kernel of 6.6 or later, or count by XDP", HookEgress: "use a kernel of 6.6 or later, or count ingress only"}[h]}
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ERANGE):
		return &probe.UnsupportedError{Feature: feature, Object: ifi.Name, Reason: "the kernel refused: " + err.Error(),
			Fix: map[string]string{modeNative: "use mode auto, which counts by TCX or generic XDP, or a driver with XDP"}[mode]}
	}
	return fmt.Errorf("%s on %s: %w", feature, ifi.Name, err)
}

// AttachOptions says which hooks of an interface to take.
type AttachOptions struct {
	Mode    Mode // of the ingress hook
	Ingress bool // XDP, or TCX
	Egress  bool // TCX
	// Last puts a TCX program behind those that are there, in place of before them. A hook
	// that is held keeps its place.
	Last bool
	// Beside lets ModeAuto count by TCX an interface whose XDP hook another program holds. Without it that is ErrBusy.
	Beside bool
	// Dispatcher lets ModeAuto take a place in the libxdp dispatcher that holds the XDP hook. It takes CAP_SYS_ADMIN and
	// Options.PinDir; without them, and where that fails, Beside applies.
	Dispatcher bool
	// GenericBesideSCTP attaches in generic mode even where Attachment.HarmsSCTP is true. Without it, Attach refuses the mode
	// there while the kernel has SCTP.
	GenericBesideSCTP bool
	// Retake lets ModeAuto move an interface from TCX to a libxdp dispatcher or to native XDP. It stays where it is if that fails.
	Retake bool
}
