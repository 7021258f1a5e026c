package xdp

import (
	"net"
	"slices"

	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/xdp/dispatcher"
)

// The modes of an attached program, as [Attachment].Mode has them.
const (
	modeNative     = "native"
	modeGeneric    = "generic"
	modeTCX        = "tcx"
	modeDispatcher = "dispatcher" // XDP, as a component of a libxdp dispatcher
)

// kindsEarly is the default of Options.Early, also for native XDP. TCX costs less there, and sees how many segments a
// buffer has.
var kindsEarly = []string{"veth", "tuntap"}

// modes lists the modes to try on a hook, best first. early: the device is one of Options.Early.
func modes(h Hook, m Mode, early bool) []string {
	switch {
	case h == HookEgress || m == ModeTCX:
		return []string{modeTCX}
	case m == ModeNative:
		return []string{modeNative}
	case m == ModeGeneric:
		return []string{modeGeneric}
	case early:
		return []string{modeTCX, modeNative, modeGeneric}
	}
	return []string{modeNative, modeTCX, modeGeneric}
}

// modes is the function modes with the place in a libxdp dispatcher that holds the hook, if o prefers it to TCX. Such a
// place outlives the process, as pins do.
func (rs *RuleSet) modes(h Hook, ifindex int, o AttachOptions, early bool) []string {
	all := modes(h, o.Mode, early)
	if rs.kernel == nil && h == HookIngress && o.Mode == ModeAuto && o.Dispatcher && rs.dir != "" && dispatcher.Holds(ifindex) {
		all = slices.Insert(all, 0, modeDispatcher)
	}
	return all
}

// satisfies reports whether a program that is attached in the mode have may stay.
func satisfies(have string, h Hook, want Mode) bool {
	return want == ModeAuto || slices.Contains(modes(h, want, false), have)
}

// besideRefused returns an error if TCX would run behind an XDP program of another owner and o does not allow that.
func (rs *RuleSet) besideRefused(ifi *net.Interface, o AttachOptions) error {
	if o.Beside || o.Mode == ModeTCX {
		return nil
	}
	if h := rs.holders.of(ifi.Index); h.program != 0 {
		return busyError("XDP", ifi, h)
	}
	return nil
}

// tcxIngressSupported returns an error if a program cannot compute the headers of merged segments, because it does not see
// behind its context.
func (l *loader) tcxIngressSupported(ifname string) error {
	if l.sees {
		return nil
	}
	return &probe.UnsupportedError{Feature: "TCX ingress", Object: ifname,
		Reason: "the kernel is older than 6.6 or has no BTF, without which the bytes of merged segments are not known",
		Fix:    "use a kernel of 6.6 or later with BTF (CONFIG_DEBUG_INFO_BTF), or free the XDP hook"}
}

// Mode is how an XDP program is attached.
type Mode uint8
