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

// AttachOptions says which hooks of an interface to take, and how.
type AttachOptions struct {
	Ingress bool // XDP, or TCX
	Egress  bool // TCX
	Mode    Mode // of the ingress hook

	// Last appends a TCX program to the programs already on the hook. By default it runs before them. A program of ours that
	// is already attached does not move.
	Last bool

	// Beside lets ModeAuto count by TCX if another program holds the XDP hook. Otherwise Attach returns ErrBusy.
	Beside bool

	// Dispatcher lets ModeAuto join the libxdp dispatcher on the XDP hook. This needs CAP_SYS_ADMIN and Options.PinDir.
	// Without them, or if joining fails, Attach falls back to Beside.
	Dispatcher bool

	// GenericBesideSCTP allows generic mode even where it can crash the kernel: see Attachment.HarmsSCTP. By default Attach
	// refuses generic mode there while SCTP is loaded.
	GenericBesideSCTP bool

	// Retake lets ModeAuto move an interface from TCX to a libxdp dispatcher or to native XDP, for example once the program
	// that held the XDP hook is gone. If the move fails, the interface stays on TCX.
	Retake bool
}

// Attach puts programs on the hooks of an interface, looked up in the network namespace of the calling thread.
//
// Attach may be called again at any time. A hook already attached in a mode allowed by o stays as it is. If the interface was
// deleted and created again, Attach attaches to the new one. If one of the hooks fails, Attach detaches those it has just
// attached.
func (dp *Datapath) Attach(ifname string, o AttachOptions) ([]Attachment, error) {
	if err := dp.enter(); err != nil {
		return nil, err
	}
	defer dp.mu.Unlock()

	ifi, dev, err := dp.interfaceByName(ifname)
	if err != nil {
		return nil, fmt.Errorf("attaching to %s: %w", ifname, err)
	}
	port, err := dp.port(ifname)
	if err != nil {
		return nil, err
	}

	var done []Attachment
	var fresh []*hook
	for _, at := range []Hook{HookIngress, HookEgress} {
		if at == HookIngress && !o.Ingress || at == HookEgress && !o.Egress {
			continue
		}
		t, err := dp.take(hookKey{port, at}, ifi, dev, o)
		if err != nil {
			for _, h := range fresh {
				dp.drop(h)
			}
			return nil, err
		}
		if t.fresh {
			fresh = append(fresh, t.hook)
		}
		t.hook.local = dev.local()
		a := dp.attachment(t.hook)
		a.Fresh, a.Rejected = t.fresh, t.rejected
		done = append(done, a)
	}
	// From here on nothing is undone, so the outages of these hooks are over.
	for _, h := range fresh {
		dp.ledger.cover(h.hookKey, h.ifindex)
	}
	return done, nil
}

// taken is the result of take.
type taken struct {
	hook     *hook
	fresh    bool    // Attachment.Fresh
	rejected []error // Attachment.Rejected
}

// take makes sure that our program is on a hook, in a mode allowed by o.
func (dp *Datapath) take(k hookKey, ifi *net.Interface, dev device, o AttachOptions) (taken, error) {
	failed := func(err error) (taken, error) {
		return taken{}, fmt.Errorf("attaching to %s: %w", ifi.Name, err)
	}
	if dp.detached() {
		return failed(ErrDetached)
	}
	layer3, err := dev.layer3(k.hook)
	if err != nil {
		return failed(err)
	}
	if err := dp.dropLeftComponent(k); err != nil {
		return failed(explain(err))
	}

	at := site{hookKey: k, layer3: layer3}
	level := slog.LevelInfo
	if h := dp.hooks[k]; h != nil {
		alive, err := h.state()
		if err != nil && h.ifindex == ifi.Index { // the program may still run, and a second one would count packets twice
			return failed(explain(err))
		}
		if alive && h.ifindex == ifi.Index && h.layer3 == layer3 && h.isOn(dev) {
			if t, kept, err := dp.keep(h, ifi, dev, o); kept || err != nil {
				return t, err
			}
		}

		if alive || h.ifindex == ifi.Index {
			dp.ledger.begin(k)
		} else {
			dp.ledger.leave(k, false) // the interface was deleted, and another one has its name now
		}
		dp.drop(h)
		level = slog.LevelDebug // the first attachment was logged
	}

	h, mode, rejected := dp.attachFirst(at, ifi, dev, o)
	if h == nil {
		return failed(errors.Join(rejected...))
	}
	dp.log.Log(context.Background(), level, "attached", "interface", ifi.Name, "hook", k.hook, "mode", mode)
	return taken{h, true, rejected}, nil
}

// dropLeftComponent retries a drop: it detaches a component that an earlier drop had to leave in its dispatcher.
func (dp *Datapath) dropLeftComponent(k hookKey) error {
	r := dp.meta.port(k.port)
	if dp.hooks[k] != nil || r.mode(k.hook) != modeDispatcher {
		return nil
	}
	err := dp.adoptComponent(k, r)
	if h := dp.hooks[k]; h != nil {
		return dp.drop(h)
	}
	return err
}

// keep checks an attached hook against o, and moves it between XDP and TCX if need be. If kept is false, the hook needs
// another mode of XDP. The caller must detach it first, because an interface has one XDP hook.
func (dp *Datapath) keep(h *hook, ifi *net.Interface, dev device, o AttachOptions) (t taken, kept bool, err error) {
	best := dp.modes(h.hook, ifi.Index, o, dp.isEarly(dev))[0]
	satisfied := satisfies(h.mode, h.hook, o.Mode)
	if best == modeGeneric && !satisfied {
		if err := dp.harmOfGeneric(dev, o); err != nil { // refuse before the caller detaches the hook
			return taken{}, false, fmt.Errorf("attaching to %s: %w", ifi.Name, err)
		}
	}

	moves := h.tcx != (best == modeTCX) && (o.Retake || !satisfied)
	if !moves {
		return taken{hook: h}, satisfied, nil
	}
	moved, err := dp.move(h, ifi, best, o.Last)
	if err != nil && satisfied {
		return taken{hook: h, rejected: []error{err}}, true, nil
	}
	return taken{hook: moved}, true, err
}

// attachFirst tries the modes for a hook in order, and stops at the first that works. h is nil if none does. rejected lists
// the error of each mode that failed.
func (dp *Datapath) attachFirst(at site, ifi *net.Interface, dev device, o AttachOptions) (h *hook, mode string, rejected []error) {
	busy := false // another program holds the XDP hook
	for _, m := range dp.modes(at.hook, ifi.Index, o, dp.isEarly(dev)) {
		if busy && m != modeTCX && m != modeDispatcher {
			continue
		}
		err := dp.modeAllowed(at.hook, m, ifi, dev, o)
		if err == nil {
			if h, err = dp.attach(at.in(m), ifi, m, o.Last); err == nil {
				return h, m, rejected
			}
			// The other modes need the same privileges, so they would fail too. A dispatcher alone needs CAP_SYS_ADMIN.
			if errors.Is(err, ErrPermission) && m != modeDispatcher {
				return nil, "", append(rejected, err)
			}
		}
		rejected = append(rejected, err)
		busy = busy || errors.Is(err, ErrBusy)
	}
	return nil, "", rejected
}

// modeAllowed returns an error if a mode must not be tried on a hook.
func (dp *Datapath) modeAllowed(at Hook, mode string, ifi *net.Interface, dev device, o AttachOptions) error {
	switch {
	case mode == modeTCX && at == HookIngress:
		return errors.Join(dp.loader.tcxIngressSupported(ifi.Name), dp.besideRefused(ifi, o))
	case mode == modeGeneric:
		return dp.harmOfGeneric(dev, o)
	}
	return nil
}

// isEarly reports whether a device allocates socket buffers before XDP runs. See Options.Early.
func (dp *Datapath) isEarly(dev device) bool { return slices.Contains(dp.earlyKinds, dev.kind) }

// attach attaches a program in one mode, pins its link, and records the hook for the next process.
func (dp *Datapath) attach(at site, ifi *net.Interface, mode string, last bool) (*hook, error) {
	p, err := dp.programFor(dp.constants, dp.sharedPrograms, at)
	if err != nil {
		return nil, err
	}
	h := &hook{
		site:     at,
		name:     ifi.Name,
		ifindex:  ifi.Index,
		mode:     mode,
		prog:     p,
		pin:      dp.pinPath(at),
		numbered: at.component || dp.named.has(at.port),
	}

	r := dp.meta.port(at.port)
	before := slices.Clone(r)
	if at.component {
		// libxdp's pins hold a component even if this process dies right after attachLink, so the record must come first.
		r.setHook(at, ifi.Index, mode)
	}
	if h.link, err = dp.attachLink(p, ifi.Index, at, mode, last); err != nil {
		copy(r, before)
		p.Close()
		return nil, dp.refusal(err, ifi, at.hook, mode)
	}
	r.setHook(at, ifi.Index, mode)

	if h.pin != "" {
		if !dp.inPlace() { // Repin will make this pin together with the lost ones
			dp.log.Warn("attached without a pin: the directory of the pins is gone", "interface", ifi.Name, "hook", at.hook)
		} else if err := h.link.Pin(h.pin); err != nil {
			copy(r, before)
			return nil, errors.Join(fmt.Errorf("pinning the link of %s: %w", ifi.Name, explain(err)), h.detach(), h.close())
		}
	}
	dp.hooks[h.hookKey] = h
	return h, nil
}

// attachLink puts a program on a hook. It always names the mode. Without a flag the kernel would choose native or generic XDP,
// and not tell us which.
func (dp *Datapath) attachLink(p *ebpf.Program, ifindex int, at site, mode string, last bool) (link.Link, error) {
	if dp.kernel != nil {
		return dp.kernel.Attach(kernelHook(ifindex, at, mode))
	}

	switch mode {
	case modeDispatcher:
		l, err := dispatcher.NewLink(ifindex, dp.maps.counters.hostMap(), dp.wait)
		if err != nil {
			return nil, err
		}
		if err := l.Update(p); err != nil {
			return nil, errors.Join(err, l.Close())
		}
		return l, nil
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

// refusal explains an error of attachLink, and says what to do about it.
func (dp *Datapath) refusal(err error, ifi *net.Interface, h Hook, mode string) error {
	if mode == modeDispatcher {
		return fmt.Errorf("taking a place in the libxdp dispatcher of %s: %w", ifi.Name, explain(err))
	}

	feature, fix := mode+" XDP", ""
	switch {
	case mode == modeTCX && h == HookIngress:
		feature, fix = "TCX ingress", "use a kernel of 6.6 or later, or count by XDP"
	case mode == modeTCX:
		feature, fix = "TCX egress", "use a kernel of 6.6 or later, or count ingress only"
	}

	switch {
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		return busyError(feature, ifi, dp.holders.of(ifi.Index))
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%s on %s: %w", feature, ifi.Name, explain(err))
	case errors.Is(err, ebpf.ErrNotSupported) && mode == modeTCX:
		return &probe.UnsupportedError{
			Feature: feature,
			Object:  ifi.Name,
			Reason:  "the kernel has no TCX: " + err.Error(),
			Fix:     fix,
		}
	case refusesMode(err):
		refused := &probe.UnsupportedError{
			Feature: feature,
			Object:  ifi.Name,
			Reason:  "the kernel refused: " + err.Error(),
		}
		if mode == modeNative {
			refused.Fix = "use mode auto, which counts by TCX or generic XDP, or a driver with XDP"
		}
		return refused
	}
	return fmt.Errorf("%s on %s: %w", feature, ifi.Name, err)
}

// refusesMode reports whether the kernel or the driver cannot attach in this mode. ERANGE means that the MTU is too large.
func refusesMode(err error) bool {
	return errors.Is(err, ebpf.ErrNotSupported) ||
		errors.Is(err, unix.EOPNOTSUPP) ||
		errors.Is(err, unix.EINVAL) ||
		errors.Is(err, unix.ERANGE)
}
