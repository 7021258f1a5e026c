package xdp

import (
	"net"
	"slices"

	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/xdp/dispatcher"
)

// Mode says how to attach a program for received packets.
type Mode uint8

const (
	// ModeAuto tries native, TCX and generic in this order. On a device listed in Options.Early it tries TCX, native and
	// generic.
	ModeAuto    Mode = iota
	ModeNative       // XDP in the driver
	ModeGeneric      // XDP on socket buffers
	ModeTCX          // TCX ingress, which runs after XDP and after segments are merged (GRO)
)

// Values of [Attachment].Mode.
const (
	modeNative     = "native"
	modeGeneric    = "generic"
	modeTCX        = "tcx"
	modeDispatcher = "dispatcher" // XDP, called by a libxdp dispatcher
)

// kindsEarly is the default of Options.Early. On these devices TCX costs less than XDP in any mode, and unlike XDP it sees how many
// segments a buffer has.
var kindsEarly = []string{"veth", "tuntap"}

// modes lists the modes to try on a hook, best first. early is the result of isEarly.
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

// modes lists the modes to try on a hook, best first. Joining a libxdp dispatcher comes first, if o allows it and a dispatcher holds
// the hook. A component outlives the process, so this needs pins, by which the next process finds it.
func (dp *Datapath) modes(h Hook, ifindex int, o AttachOptions, early bool) []string {
	all := modes(h, o.Mode, early)
	allowed := dp.kernel == nil && h == HookIngress && o.Mode == ModeAuto && o.Dispatcher && dp.dir != ""
	if allowed && dispatcher.Holds(ifindex) {
		return slices.Insert(all, 0, modeDispatcher)
	}
	return all
}

// satisfies reports whether a program attached in mode have may stay if the caller wants mode want.
func satisfies(have string, h Hook, want Mode) bool {
	return want == ModeAuto || slices.Contains(modes(h, want, false), have)
}

// besideRefused returns an error if another owner's XDP program holds the hook, and o does not allow counting by TCX after it.
func (dp *Datapath) besideRefused(ifi *net.Interface, o AttachOptions) error {
	if o.Beside || o.Mode == ModeTCX {
		return nil
	}
	if h := dp.holders.of(ifi.Index); h.program != 0 {
		return busyError("XDP", ifi, h)
	}
	return nil
}

// tcxIngressSupported returns an error if our TCX program could not see how many segments a buffer has. It reads that from the
// kernel structure behind its context: see seesContext.
func (l *loader) tcxIngressSupported(ifname string) error {
	if l.sees {
		return nil
	}
	return &probe.UnsupportedError{Feature: "TCX ingress", Object: ifname,
		Reason: "the kernel is older than 6.6 or has no BTF, without which the bytes of merged segments are not known",
		Fix:    "use a kernel of 6.6 or later with BTF (CONFIG_DEBUG_INFO_BTF), or free the XDP hook"}
}
