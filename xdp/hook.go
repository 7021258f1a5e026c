package xdp

import (
	"errors"
	"fmt"
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

	numbered bool // the program has the number of the interface; see programs.go
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

// Hook is a place in the kernel where a program is attached.
type Hook string

// attachType is the hook of a TCX program.
func (at site) attachType() ebpf.AttachType {
	if at.hook == HookEgress {
		return ebpf.AttachTCXEgress
	}
	return ebpf.AttachTCXIngress
}
