package xdp

import (
	"net"
	"slices"

	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/xdp/dispatcher"
)

// Mode says how the program of an ingress hook is to be attached.
type Mode uint8

const (
	// ModeAuto is the first that works of native, TCX and generic, or of TCX, native and generic on a device that makes
	// socket buffers before XDP runs (Options.Early).
	ModeAuto    Mode = iota
	ModeNative       // in the driver, or not at all
	ModeGeneric      // on socket buffers
	ModeTCX          // TCX ingress: behind XDP, and behind the merging of segments (GRO)
)

// The modes of an attached program, as [Attachment].Mode has them.
const (
	modeNative     = "native"
	modeGeneric    = "generic"
	modeTCX        = "tcx"
	modeDispatcher = "dispatcher" // XDP, as a component of a libxdp dispatcher
)

// kindsEarly is the default of Options.Early. On these devices TCX costs less than XDP of either mode, and sees how many
// segments a buffer has.
var kindsEarly = []string{"veth", "tuntap"}

// modes lists the modes to try on a hook, best first. early: the device makes socket buffers before XDP runs.
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

// modes is the function modes, with a place in the libxdp dispatcher first if o allows one and a dispatcher holds the hook.
// Such a place outlives the process, so it takes pins.
func (dp *Datapath) modes(h Hook, ifindex int, o AttachOptions, early bool) []string {
	all := modes(h, o.Mode, early)
	allowed := dp.kernel == nil && h == HookIngress && o.Mode == ModeAuto && o.Dispatcher && dp.dir != ""
	if allowed && dispatcher.Holds(ifindex) {
		return slices.Insert(all, 0, modeDispatcher)
	}
	return all
}

// satisfies reports whether a program attached in mode have may stay where mode want is asked for.
func satisfies(have string, h Hook, want Mode) bool {
	return want == ModeAuto || slices.Contains(modes(h, want, false), have)
}

// besideRefused returns an error if TCX would run behind an XDP program of another owner, which o does not allow.
func (dp *Datapath) besideRefused(ifi *net.Interface, o AttachOptions) error {
	if o.Beside || o.Mode == ModeTCX {
		return nil
	}
	if h := dp.holders.of(ifi.Index); h.program != 0 {
		return busyError("XDP", ifi, h)
	}
	return nil
}

// tcxIngressSupported returns an error if a program of TCX cannot tell how many segments a buffer has, because it does not
// see behind its context.
func (l *loader) tcxIngressSupported(ifname string) error {
	if l.sees {
		return nil
	}
	return &probe.UnsupportedError{Feature: "TCX ingress", Object: ifname,
		Reason: "the kernel is older than 6.6 or has no BTF, without which the bytes of merged segments are not known",
		Fix:    "use a kernel of 6.6 or later with BTF (CONFIG_DEBUG_INFO_BTF), or free the XDP hook"}
}
