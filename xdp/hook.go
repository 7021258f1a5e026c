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

// Hook is one of the two places at which an interface is counted.
type Hook string

const (
	HookIngress Hook = "xdp" // received packets, counted by XDP or TCX
	HookEgress  Hook = "tcx" // sent packets, counted by TCX
)

// hookKey is a hook of a numbered interface.
type hookKey struct {
	port uint16
	hook Hook
}

// site is a hook and everything about it that decides which program it needs.
type site struct {
	hookKey
	layer3    bool // frames of the interface begin with IP
	tcx       bool // TCX: on egress, or on ingress after XDP
	component bool // XDP, called by a libxdp dispatcher

	// generic is XDP on socket buffers. Its program must not support fragmented frames (frags). If it did, Linux since 6.9
	// would copy each socket buffer. After such a copy, TCX programs find no Ethernet header, and SCTP, which trims received
	// buffers, warns and loses the connection.
	generic bool
}

// in returns the site of the same hook in another mode.
func (at site) in(mode string) site {
	at.tcx = mode == modeTCX
	at.component = mode == modeDispatcher
	at.generic = mode == modeGeneric
	return at
}

// attachType returns the TCX hook of a site.
func (at site) attachType() ebpf.AttachType {
	if at.hook == HookEgress {
		return ebpf.AttachTCXEgress
	}
	return ebpf.AttachTCXIngress
}

// hook is an attached program. Its link must stay referenced: otherwise the garbage collector closes the link, which detaches an
// unpinned program.
type hook struct {
	site
	name    string
	ifindex int
	mode    string
	link    link.Link
	prog    *ebpf.Program // nil if an earlier process loaded it
	pin     string        // path; "" without pins

	adopted  bool // attached by an earlier process
	numbered bool // the program has the number of the interface; see programs.go
	local    bool // device.local at the last Attach
}

// update exchanges the program atomically: each packet meets either the old or the new one.
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

// alive reports whether the program is still attached. It is not if somebody detached it, or if the interface was deleted.
func (h *hook) alive() bool {
	alive, err := h.state()
	return alive && err == nil
}

// state is like alive, but tells "no" from "unknown". An error means that the program may still run: for example, this process may
// lack the rights to look into a dispatcher.
func (h *hook) state() (alive bool, err error) {
	if l, is := h.link.(*dispatcher.Link); is {
		return l.Attached()
	}
	index, err := linkIndex(h.link)
	return err == nil && index == h.ifindex && index != 0, nil
}

// isOn reports whether the program is on this very device, in the network namespace of the calling thread. Name and index do not
// prove it: the interface may have moved to another namespace, or the process that pinned the link ran in another one.
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

// linkIndex returns the index of the interface of a link, or 0 if the link is detached.
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

// detach detaches the program by its link. Removing the pin would not do: if somebody has moved the pin, it still keeps the program
// attached.
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

// drop detaches a hook, removes its pin and forgets it. If a component cannot be detached from its dispatcher, its record in the
// meta map remains, and the next take tries again (dropLeftComponent).
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

// pinPath returns the path for the pin of a link, or "" if this package does not pin it: libxdp pins the links of components. The
// path contains the number of the interface, because its name may have a dot, which bpffs refuses.
func (dp *Datapath) pinPath(at site) string {
	if dp.dir == "" || at.component {
		return ""
	}
	return filepath.Join(dp.dir, fmt.Sprintf("%s%d-%s", linkPrefix, at.port, at.hook))
}
