package xdp

import (
	"cmp"
	"slices"
)

// Attachment is one program on one hook.
type Attachment struct {
	Interface string
	Index     int // ifindex
	Port      uint16
	Hook      Hook
	Mode      string // "native", "generic", "tcx" or "dispatcher"
	Layer3    bool   // frames begin with IP: there is no Ethernet header and no VLAN tag
	Adopted   bool   // it was attached before this process
	Fresh     bool   // this call of Attach attached it, and did not move it from another mode
	// HarmsSCTP: the mode is generic, and the device receives buffers of this host. Generic XDP makes each buffer linear, for
	// any program. A linear buffer of SCTP has no valid segments, and Linux 6.12 to 7.3 crashes on forwarding it.
	HarmsSCTP bool
	// Rejected holds the reason of every mode that was tried before Mode, or of a Retake that failed.
	Rejected []error
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

// Look is Attachments, and notes in the ledger which interfaces have lost their programs. It is called in the network
// namespace of the interfaces.
func (rs *RuleSet) Look(ifnames ...string) []Attachment {
	return rs.list(ifnames, rs.lapse)
}

// Attachments lists the attached programs, ordered by port and hook, without deleted interfaces: those of the named
// interfaces, or of all where none is named. It costs a system call for each hook.
func (rs *RuleSet) Attachments(ifnames ...string) []Attachment {
	return rs.list(ifnames, func(*hook) {})
}

// list lists the attached programs, and calls lapsed for each hook whose program is not attached any more.
func (rs *RuleSet) list(ifnames []string, lapsed func(*hook)) []Attachment {
	if rs.enter() != nil {
		return nil
	}
	defer rs.mu.Unlock()
	var all []Attachment
	note := func(h *hook) {
		switch {
		case h == nil:
		case h.alive():
			all = append(all, rs.attachment(h))
		default:
			lapsed(h)
		}
	}
	if len(ifnames) == 0 {
		for _, h := range rs.hooks {
			note(h)
		}
	}
	for _, name := range ifnames {
		if port, ok := rs.meta.portOf(name); ok {
			note(rs.hooks[hookKey{port, HookIngress}])
			note(rs.hooks[hookKey{port, HookEgress}])
		}
	}
	slices.SortFunc(all, func(a, b Attachment) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(b.Hook, a.Hook))
	})
	return all
}

// Held is how many hooks hold a program of this rule set. It is cheap enough to be asked often:
// the kernel sends no event when a program is detached.
func (rs *RuleSet) Held() (n int) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, h := range rs.hooks {
		if h.alive() {
			n++
		}
	}
	return n
}
