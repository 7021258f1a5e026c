package xdp

import (
	"cmp"
	"slices"
)

// Attachment is a program on a hook.
type Attachment struct {
	Interface string
	Index     int    // of the interface
	Port      uint16 // see Datapath.Port
	Hook      Hook
	Mode      string // "native", "generic", "tcx" or "dispatcher"
	Layer3    bool   // frames begin with IP: they have no Ethernet header and no VLAN tag

	Adopted bool // attached by an earlier process
	Fresh   bool // attached by this call of Attach; false if the call has only moved it between modes

	// HarmsSCTP warns of a kernel crash: the mode is generic, and the device receives buffers from this host. Generic XDP
	// linearizes each buffer, whatever the program does. A linear SCTP buffer has no valid segments, and Linux 6.12 to 7.3
	// crashes when it forwards one.
	HarmsSCTP bool

	// Rejected lists the error of each mode that Attach tried before Mode, or the error of a failed Retake.
	Rejected []error
}

func (dp *Datapath) attachment(h *hook) Attachment {
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

// Look lists what Attachments lists. In addition, it records an outage for each hook that has lost its program. Callers must
// run it in the network namespace of the interfaces.
func (dp *Datapath) Look(ifnames ...string) []Attachment {
	return dp.list(ifnames, dp.lapse)
}

// Attachments lists the programs attached to the named interfaces, or to all, ordered by Port and Hook. Deleted interfaces are
// left out. It makes one system call per hook.
func (dp *Datapath) Attachments(ifnames ...string) []Attachment {
	return dp.list(ifnames, func(*hook) {})
}

// list lists the attached programs, and calls lapsed for each hook that has lost its program.
func (dp *Datapath) list(ifnames []string, lapsed func(*hook)) []Attachment {
	if dp.enter() != nil {
		return nil
	}
	defer dp.mu.Unlock()

	var all []Attachment
	note := func(h *hook) {
		switch {
		case h == nil:
		case h.alive():
			all = append(all, dp.attachment(h))
		default:
			lapsed(h)
		}
	}
	if len(ifnames) == 0 {
		for _, h := range dp.hooks {
			note(h)
		}
	}
	for _, name := range ifnames {
		if port, ok := dp.meta.portOf(name); ok {
			note(dp.hooks[hookKey{port, HookIngress}])
			note(dp.hooks[hookKey{port, HookEgress}])
		}
	}

	slices.SortFunc(all, func(a, b Attachment) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(b.Hook, a.Hook))
	})
	return all
}

// Held returns the number of hooks that still have our program. The kernel sends no event when somebody detaches a program, so
// callers must poll. It makes one system call per hook.
func (dp *Datapath) Held() (n int) {
	dp.mu.Lock()
	defer dp.mu.Unlock()
	for _, h := range dp.hooks {
		if h.alive() {
			n++
		}
	}
	return n
}
