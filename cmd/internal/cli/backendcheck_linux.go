package cli

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane/probe"
)

// backendChecks asks what each backend can do here, on those interfaces or on
// all that are up. Nothing is attached to any of them: a driver may stop its
// queues for a moment when a program is attached natively.
func backendChecks(interfaces []string) []probe.Result {
	results := []probe.Result{
		askKernel("XDP programs", features.HaveProgramType(ebpf.XDP), "a kernel with CONFIG_BPF_SYSCALL"),
		askKernel("memory-mapped BPF arrays", features.HaveMapFlag(features.BPF_F_MMAPABLE), "a kernel from 5.5 on"),
		askKernel("egress by TCX", haveTCX(), "a kernel from 6.6 on; clsact is taken before"),
	}
	if len(interfaces) == 0 {
		interfaces = upInterfaces()
	}
	for _, name := range interfaces {
		results = append(results, checkInterface(name)...)
	}
	return append(results, probe.Result{Object: "backend sim", Feature: "simulated counting", Answer: probe.Yes, Reason: "needs nothing"})
}

// askKernel turns the answer of a probe of the kernel into a Result.
func askKernel(feature string, err error, fix string) probe.Result {
	r := probe.Result{Object: "backend xdp", Feature: feature}
	switch {
	case err == nil:
		r.Answer = probe.Yes
	case errors.Is(err, ebpf.ErrNotSupported):
		r.Answer, r.Reason, r.Fix = probe.No, err.Error(), fix
	case errors.Is(err, os.ErrPermission):
		r.Reason, r.Fix = err.Error(), "run as root, to have the question asked"
	default:
		r.Reason = err.Error()
	}
	return r
}

// haveTCX attaches a program to an interface that cannot be: a kernel that
// knows TCX says so by the error.
func haveTCX() error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:         ebpf.SchedCLS,
		License:      "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		return err
	}
	defer prog.Close()
	l, err := link.AttachTCX(link.TCXOptions{Interface: math.MaxInt32, Program: prog, Attach: ebpf.AttachTCXEgress})
	if err == nil {
		return errors.Join(errors.New("attached to an interface that is not there"), l.Close())
	}
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

func upInterfaces() []string {
	links, _ := net.Interfaces()
	var names []string
	for _, l := range links {
		if l.Flags&net.FlagUp != 0 && l.Flags&net.FlagLoopback == 0 {
			names = append(names, l.Name)
		}
	}
	return names
}

// checkInterface answers what an interface can do.
func checkInterface(name string) []probe.Result {
	native := probe.Result{Object: name, Feature: "ingress by XDP, native"}
	generic := probe.Result{Object: name, Feature: "ingress by XDP, generic"}
	l, err := netlink.LinkByName(name)
	if err != nil {
		r := probe.Result{Object: name, Feature: "interface", Answer: probe.No, Reason: err.Error(), Fix: "ip link shows the interfaces of this network namespace"}
		if !errors.As(err, &netlink.LinkNotFoundError{}) {
			r.Answer, r.Fix = probe.Inconclusive, ""
		}
		return []probe.Result{r}
	}
	attrs := l.Attrs()
	switch basic, err := nativeXDP(attrs.Index); {
	case err != nil:
		native.Reason = fmt.Sprintf("the kernel does not tell (%v); it is tried at the start", err)
	case basic:
		native.Answer, native.Reason = probe.Yes, "driver "+driverOf(name)
	default:
		native.Answer, native.Reason = probe.No, "driver "+driverOf(name)+" has no XDP"
		native.Fix = "mode: generic (dearer; sees packets that GRO has merged), or another port"
	}
	if attrs.EncapType == "ether" || attrs.EncapType == "loopback" {
		generic.Answer = probe.Yes
	} else {
		generic.Answer, generic.Reason = probe.No, "link type "+attrs.EncapType+" has no Ethernet header"
		generic.Fix = "count on the Ethernet interface below it"
	}
	results := []probe.Result{native, generic}
	if x := attrs.Xdp; x != nil && x.Attached {
		results = append(results, checkHolder(name, x))
	}
	return results
}

// checkHolder answers whether the XDP hook, which a program holds, is ours.
func checkHolder(name string, x *netlink.LinkXdp) probe.Result {
	r := probe.Result{Object: name, Feature: "XDP hook free", Answer: probe.No}
	id := ebpf.ProgramID(x.ProgId)
	program := fmt.Sprintf("program %d", id)
	if p, err := ebpf.NewProgramFromID(id); err == nil {
		if info, err := p.Info(); err == nil {
			program += " (" + info.Name + ")"
		}
		p.Close()
	}
	r.Reason = program + " is attached; flowtally's own is taken over at the start"
	r.Fix = fmt.Sprintf("bpftool prog show id %d says whose it is; ip link set dev %s xdp off removes it", id, name)
	return r
}

// driverOf names the driver of an interface as sysfs has it.
func driverOf(name string) string {
	if target, err := os.Readlink("/sys/class/net/" + name + "/device/driver"); err == nil {
		return filepath.Base(target)
	}
	l, err := netlink.LinkByName(name)
	if err != nil || l.Type() == "" || l.Type() == "device" {
		return "unknown"
	}
	return l.Type()
}
