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

// Hook is a place in the kernel where a program is attached.
type Hook string

const (
	HookIngress Hook = "xdp" // packets that an interface receives, counted by XDP or by TCX
	HookEgress  Hook = "tcx" // packets that it sends
)

// hookKey is a hook of a numbered interface.
type hookKey struct {
	port uint16
	hook Hook
}

// site is what a program depends on: its hook, and the kind of program that runs there.
type site struct {
	hookKey
	layer3    bool // frames of the interface begin with IP
	tcx       bool // a program of TCX: on egress, and on ingress behind XDP
	component bool // a program of XDP that a libxdp dispatcher calls

	// generic: a program of XDP on socket buffers. It takes no frames of several buffers (frags). For a program with
	// frags, Linux from 6.9 on copies each socket buffer. Behind the copy, programs of TCX find no Ethernet header, and
	// SCTP, which trims received buffers, warns and loses the connection.
	generic bool
}

// in returns the site for another mode.
func (at site) in(mode string) site {
	at.tcx = mode == modeTCX
	at.component = mode == modeDispatcher
	at.generic = mode == modeGeneric
	return at
}

// attachType returns the hook of a TCX program.
func (at site) attachType() ebpf.AttachType {
	if at.hook == HookEgress {
		return ebpf.AttachTCXEgress
	}
	return ebpf.AttachTCXIngress
}

// hook is a program on a hook of an interface. It refers to the link: without a reference, the garbage collector closes a
// link, and the program is detached.
type hook struct {
	site
	name    string
	ifindex int
	mode    string
	link    link.Link
	prog    *ebpf.Program // nil: an earlier process has loaded it
	pin     string        // path; "" if nothing is pinned

	adopted  bool // an earlier process has attached it
	numbered bool // the program has the number of the interface; see programs.go
	local    bool // device.local, as of the last Attach
}

// update exchanges the program. Each packet passes the old or the new one.
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

// alive reports whether the link is known to be attached to its interface. A deleted interface takes the program along.
func (h *hook) alive() bool {
	alive, err := h.state()
	return alive && err == nil
}

// state is alive. After an error the program may run or not: this process may not look into a dispatcher.
func (h *hook) state() (alive bool, err error) {
	if l, is := h.link.(*dispatcher.Link); is {
		return l.Attached()
	}
	index, err := linkIndex(h.link)
	return err == nil && index == h.ifindex && index != 0, nil
}

// isOn reports whether an attached program is on a device of the network namespace of the calling thread. A device of
// another namespace may have the same index and name: it was moved there, or the process that has pinned the link was there.
func (h *hook) isOn(dev device) bool {
	if h.component {
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

// linkIndex returns the index of the interface that a link is attached to, or 0.
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

// close closes the descriptors. The program stays attached if the link is pinned.
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

// detach takes the program off the hook by its link. To remove the pin would not be enough: somebody may have moved the pin,
// which keeps the program attached.
func (h *hook) detach() error {
	if err := h.link.Detach(); err != nil {
		return fmt.Errorf("detaching the %s program of %s: %w", h.hook, h.name, explain(err))
	}
	if h.component {
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

// drop detaches a hook, removes its pin and forgets it. A component may stay in its dispatcher: then the meta map keeps the
// record of it, by which the next take finds it.
func (dp *Datapath) drop(h *hook) error {
	delete(dp.hooks, h.hookKey)

	err := h.detach()
	staysInDispatcher := h.component && err != nil
	if h.pin != "" {
		err = errors.Join(err, unpin(dp.lock, filepath.Base(h.pin)))
	}
	if err = errors.Join(err, h.close()); err != nil {
		dp.log.Warn("detaching", "interface", h.name, "hook", h.hook, "error", err)
	}

	if !staysInDispatcher {
		dp.meta.port(h.port).setHook(h.site, h.ifindex, "")
	}
	return err
}

const linkPrefix = "link-"

func isLinkPin(name string) bool { return strings.HasPrefix(name, linkPrefix) }

// pinPath returns the path of a link's pin, or "" if nothing is pinned. It has the number of the interface and not the
// name: bpffs takes no name with a dot. libxdp pins the link of a component.
func (dp *Datapath) pinPath(at site) string {
	if dp.dir == "" || at.component {
		return ""
	}
	return filepath.Join(dp.dir, fmt.Sprintf("%s%d-%s", linkPrefix, at.port, at.hook))
}
