package xdp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/flowtally/flowtally/internal/kernel"
	"github.com/flowtally/flowtally/xdp/dispatcher"
)

type hookKey struct {
	port uint16
	hook Hook
}

// site is where a program is to run, as far as its constants depend on it.
type site struct {
	hookKey
	layer3 bool // frames of the interface begin with IP
	tcx    bool // a program of TCX: on egress, and on ingress behind XDP
	slot   bool // a program of XDP, in a libxdp dispatcher
	// generic: a program of XDP on socket buffers. It takes no frames of several buffers (frags). For a program with
	// frags, Linux from 6.9 on copies each socket buffer. Behind the copy, programs of TCX find no Ethernet header, and
	// SCTP, which trims received buffers, warns and loses the connection.
	generic bool
}

// in returns the site for a mode.
func (at site) in(mode string) site {
	at.tcx = mode == modeTCX
	at.slot = mode == modeDispatcher
	at.generic = mode == modeGeneric
	return at
}

// hook is one program on one hook of one interface. It holds the link: a link without a reference
// is collected, and detaches.
type hook struct {
	site
	name    string
	ifindex int
	mode    string
	local   bool // device.local, of ingress
	adopted bool
	link    link.Link
	prog    *ebpf.Program // nil: the program of a process before this one
	pin     string        // "" when nothing is pinned

	numbered bool // the program has the number of the interface; see share.go
}

func (rs *RuleSet) attachment(h *hook) Attachment {
	return Attachment{
		Interface: h.name,
		Index:     h.ifindex,
		Port:      h.port,
		Hook:      h.hook,
		Mode:      h.mode,
		Layer3:    h.layer3,
		Adopted:   h.adopted,
		HarmsSCTP: h.mode == modeGeneric && h.local,
	}
}

// update exchanges the program; no packet passes without one.
func (h *hook) update(p *ebpf.Program) error {
	if err := h.link.Update(p); err != nil {
		return fmt.Errorf("exchanging the %s program of %s: %w", h.hook, h.name, explain(err))
	}
	if h.prog != nil {
		h.prog.Close()
	}
	h.prog = p
	return nil
}

// alive says whether the link is still attached to its interface. A deleted
// interface takes the program with it.
func (h *hook) alive() bool {
	alive, err := h.state()
	return alive && err == nil
}

// state is alive, with an error if the program may run unseen: a dispatcher does not always show its programs.
func (h *hook) state() (alive bool, err error) {
	if s, is := h.link.(*dispatcher.Slot); is {
		return s.Filled()
	}
	i, err := linkIndex(h.link)
	return err == nil && i == h.ifindex && i != 0, nil
}

// isOn reports whether an attached program is on a device of the network namespace of the calling thread. A device of
// another namespace may have the same index and name: it was moved there, or the process that has pinned the link was there.
func (h *hook) isOn(dev device) bool {
	if h.slot {
		return true
	}
	if l, is := h.link.(kernel.Link); is {
		return l.InNamespace()
	}
	info, err := h.link.Info()
	if err != nil {
		return true
	}
	if !h.tcx {
		return dev.program == uint32(info.Program) || dev.several
	}
	chain, err := link.QueryPrograms(link.QueryOptions{Target: h.ifindex, Attach: h.attachType()})
	return err != nil || slices.ContainsFunc(chain.Programs, func(p link.AttachedProgram) bool {
		id, _ := p.LinkID()
		return id == info.ID
	})
}

func linkIndex(l link.Link) (int, error) {
	if l, is := l.(kernel.Link); is {
		return l.Index(), nil
	}
	info, err := l.Info()
	if err != nil {
		return 0, fmt.Errorf("asking a link: %w", err)
	}
	if x := info.XDP(); x != nil {
		return int(x.Ifindex), nil
	}
	if x := info.TCX(); x != nil {
		return int(x.Ifindex), nil
	}
	return 0, fmt.Errorf("asking a link: %w: it is of type %v", ErrIncompatible, info.Type)
}

// close lets go of the hook. The program stays attached when the link is pinned.
func (h *hook) close() error {
	var errs []error
	if h.link != nil {
		errs = append(errs, h.link.Close())
	}
	if h.prog != nil {
		errs = append(errs, h.prog.Close())
	}
	h.link, h.prog = nil, nil
	return errors.Join(errs...)
}

// detach takes the program off the hook, by the link and not by its pin: a pin can be elsewhere
// by now, and would keep the program attached.
func (h *hook) detach() error {
	if err := h.link.Detach(); err != nil {
		return fmt.Errorf("detaching the %s program of %s: %w", h.hook, h.name, explain(err))
	}
	if h.slot {
		return nil
	}
	ifindex, err := linkIndex(h.link)
	if err != nil {
		return fmt.Errorf("checking that the %s program of %s is detached: %w", h.hook, h.name, err)
	}
	if ifindex != 0 {
		return fmt.Errorf("detaching the %s program of %s: the kernel still has it on interface %d", h.hook, h.name, ifindex)
	}
	return nil
}

const linkPrefix = "link-"

func isLinkPin(name string) bool { return strings.HasPrefix(name, linkPrefix) }

// pinPath has the number of the port, not its name: bpffs takes no name with a dot.
func (rs *RuleSet) pinPath(at site) string {
	if rs.dir == "" || at.slot {
		return ""
	}
	return filepath.Join(rs.dir, fmt.Sprintf("%s%d-%s", linkPrefix, at.port, at.hook))
}

// drop forgets a hook, detaches it and removes its pin. The record keeps a place in a dispatcher that could not be emptied.
func (rs *RuleSet) drop(h *hook) error {
	delete(rs.hooks, h.hookKey)
	err := h.detach()
	full := h.slot && err != nil
	if h.pin != "" {
		err = errors.Join(err, unpin(rs.lock, filepath.Base(h.pin)))
	}
	if err = errors.Join(err, h.close()); err != nil {
		rs.log.Warn("detaching", "interface", h.name, "hook", h.hook, "error", err)
	}
	if !full {
		rs.meta.port(h.port).setHook(h.site, h.ifindex, "")
	}
	return err
}

// adoptSlot takes up the place of an earlier process in a dispatcher. After an error the program may be there: the hook is
// taken up, so that the interface does not get a second one.
func (rs *RuleSet) adoptSlot(k hookKey, r portRecord) error {
	s, err := dispatcher.NewSlot(r.ifindex(), rs.maps.counters.hostMap(), rs.wait)
	if err != nil {
		return err
	}
	filled, err := s.Filled()
	if err == nil && !filled {
		return errors.Join(s.Detach(), s.Close()) // its interface may be in another namespace
	}
	rs.hooks[k] = &hook{
		site:    site{hookKey: k, layer3: r.layer3()}.in(modeDispatcher),
		name:    r.name(),
		ifindex: r.ifindex(),
		mode:    r.mode(k.hook),
		adopted: true,
		link:    s,
	}
	return err
}

// adoptHooks takes up the links that a process left pinned. Links of interfaces that are gone are removed.
func (rs *RuleSet) adoptHooks() {
	for n := range uint16(maxPorts) {
		r := rs.meta.port(n)
		if !r.used() {
			continue
		}
		for _, at := range []Hook{HookIngress, HookEgress} {
			k, mode := hookKey{port: n, hook: at}, r.mode(at)
			if mode == modeDispatcher {
				if err := rs.adoptSlot(k, r); err != nil {
					rs.log.Warn("adopting a place in a dispatcher", "interface", r.name(), "error", err)
				}
				mode = modeTCX // of a link that is pinned: the process died in a move between the two
			}
			l, err := rs.openLink(rs.pinPath(site{hookKey: k}))
			if err != nil {
				if !errors.Is(err, os.ErrNotExist) {
					rs.log.Warn("adopting a link", "interface", r.name(), "hook", at, "error", err)
				}
				continue
			}
			h := &hook{
				site:    site{hookKey: k, layer3: r.layer3()}.in(mode),
				name:    r.name(),
				mode:    mode,
				adopted: true,
				link:    l,
			}
			if h.ifindex, _ = linkIndex(l); h.ifindex == 0 { // of a link that was detached; else the record has one for both hooks
				h.ifindex = r.ifindex()
			}
			h.pin = rs.pinPath(h.site)
			slot := rs.hooks[k]
			rs.hooks[k] = h
			if slot != nil || !h.alive() || h.mode == "" {
				rs.log.Info("removing a link that is not needed, or whose interface is gone", "interface", h.name, "hook", at)
				rs.drop(h)
			}
			if slot != nil {
				rs.hooks[k] = slot
				r.setHook(slot.site, slot.ifindex, slot.mode)
			}
		}
	}
}
