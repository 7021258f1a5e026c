package xdp

import (
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/genl"
	"github.com/flowtally/flowtally/probe"
)

// Probe reports which features of this package work on this host, and on an interface of the calling thread's network namespace. It
// does not try to attach a program, because a driver may reset its queues for that.
func Probe(ifname string) []probe.Result { return new(Prober).Probe(ifname) }

// Prober probes many interfaces at less cost than as many calls of Probe: it lists the kernel's links and pins once.
type Prober struct{ holders holders }

// Probe works like the function Probe.
func (p *Prober) Probe(ifname string) []probe.Result {
	all := []probe.Result{
		probe.Ask("eBPF maps", "", probeMap()),
		probe.Ask("XDP programs", "", permission(features.HaveProgramType(ebpf.XDP))),
		probe.Ask("TCX", "", probeTCX()),
		probe.Ask("bpffs", bpffs, probeBPFFS()),
	}
	ifi, _, err := interfaceByName(ifname)
	if err != nil {
		return append(all, probe.Result{
			Feature: "interface",
			Object:  ifname,
			Answer:  probe.No,
			Reason:  err.Error() + "; " + Listed(),
			Fix:     "name one that is there",
		})
	}
	native := probe.Ask("native XDP", ifname, probeNative(ifi))
	return append(all, native, p.probeHook(ifi))
}

// permission turns a permission error into a conclusive no. Otherwise the probe would be inconclusive.
func permission(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return &probe.UnsupportedError{Feature: "eBPF", Reason: "not permitted to this process",
			Fix: "run as root, or with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"}
	}
	if errors.Is(err, ebpf.ErrNotSupported) {
		return &probe.UnsupportedError{Feature: "eBPF", Reason: err.Error(), Fix: "use a kernel of 6.1 or later"}
	}
	return err
}

func probeMap() error {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1, Flags: mmapable})
	if err != nil {
		return permission(err)
	}
	return m.Close()
}

// probeTCX lists the programs of a TCX hook, which works only if the kernel has TCX.
func probeTCX() error {
	if err := probeMap(); err != nil {
		return err // without the right to use eBPF, the library would report that TCX is missing
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding lo: %w", err)
	}
	_, err = link.QueryPrograms(link.QueryOptions{Target: lo.Attrs().Index, Attach: ebpf.AttachTCXEgress})
	if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) {
		return &probe.UnsupportedError{
			Feature: "TCX",
			Reason:  "the kernel has none: " + err.Error(),
			Fix:     "use a kernel of 6.6 or later, or count ingress only",
		}
	}
	return permission(err)
}

func probeBPFFS() error {
	var fs unix.Statfs_t
	if err := unix.Statfs(bpffs, &fs); err != nil {
		return fmt.Errorf("looking at %s: %w", bpffs, err)
	}
	if fs.Type != unix.BPF_FS_MAGIC {
		return &probe.UnsupportedError{
			Feature: "bpffs",
			Object:  bpffs,
			Reason:  "not mounted (ip netns exec hides it)",
			Fix:     mountBPFFS(bpffs),
		}
	}
	return nil
}

// probeHook reports whether the XDP hook of an interface is free. A hook held by flowtally counts as free, because it may be held by
// the very instance on whose behalf we probe.
func (p *Prober) probeHook(ifi *net.Interface) probe.Result {
	r := probe.Result{Feature: "free XDP hook", Object: ifi.Name, Answer: probe.Yes}
	h := p.holders.of(ifi.Index)
	switch {
	case h.program == 0:
	case h.instance != "" || programName(ebpf.ProgramID(h.program)) == "flowtally_xdp":
		r.Reason = "held by " + h.String()
	default:
		r.Answer = probe.No
		r.Fix = h.fix(ifi.Index, ifi.Name)
		r.Reason = "held by " + h.String() + "; mode auto counts received packets behind it, by TCX, " +
			"without those that it drops, redirects or sends back"
	}
	return r
}

// The netdev family of generic netlink, since 6.3 (Documentation/netlink/specs/netdev.yaml).
const (
	netdevCmdDevGet      = 1
	netdevAttrIfindex    = 1
	netdevAttrFeatures   = 3
	netdevFeatureXDPPass = 1 // NETDEV_XDP_ACT_BASIC
)

// probeNative asks the driver whether it has native XDP.
func probeNative(ifi *net.Interface) error {
	netdev, err := genl.Find("netdev")
	if err != nil {
		return fmt.Errorf("asking for XDP features: the kernel does not say (it takes 6.3): %w", err)
	}
	replies, err := netdev.Execute(netdevCmdDevGet, 0, nl.NewRtAttr(netdevAttrIfindex, nl.Uint32Attr(uint32(ifi.Index))))
	if err != nil {
		return fmt.Errorf("asking for XDP features: %w", err)
	}

	for _, reply := range replies {
		features := genl.Attribute(reply, netdevAttrFeatures)
		if len(features) < 8 {
			continue
		}
		if nl.NativeEndian().Uint64(features)&netdevFeatureXDPPass != 0 {
			return nil
		}
		return &probe.UnsupportedError{
			Feature: "native XDP", Object: ifi.Name, Reason: "the driver has none",
			Fix: "use mode auto, which counts by TCX or generic XDP, or another device",
		}
	}
	return errors.New("asking for XDP features: no reply")
}

func supported() error { return nil }
