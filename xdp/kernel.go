package xdp

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/flowtally/flowtally/internal/kernel"
)

// This file asks Options.Kernel if there is one, and else the kernel of the host.

// cpus returns the number of possible CPUs.
func (rs *RuleSet) cpus() (int, error) {
	if rs.kernel != nil {
		return rs.kernel.CPUs()
	}
	return ebpf.PossibleCPU()
}

// lockPins makes and locks the directory of the pins.
func (rs *RuleSet) lockPins() (*os.File, error) {
	if rs.kernel != nil {
		return rs.kernel.LockPins(rs.dir)
	}
	return lockDir(rs.dir)
}

// openLink opens a pinned link.
func (rs *RuleSet) openLink(path string) (link.Link, error) {
	if rs.kernel != nil {
		return rs.kernel.OpenLink(path)
	}
	return link.LoadPinnedLink(path, nil)
}

// interfaceByName asks for one interface, in the network namespace of the calling thread.
func (rs *RuleSet) interfaceByName(name string) (*net.Interface, device, error) {
	if rs.kernel == nil {
		return interfaceByName(name)
	}
	i, ok := rs.kernel.Interface(name)
	if !ok {
		return nil, device{}, noInterface()
	}
	dev := device{
		name:    i.Name,
		link:    "ether",
		kind:    i.Kind,
		program: i.Program,
	}
	return &net.Interface{Index: i.Index, Name: i.Name}, dev, nil
}

// noInterface is an ErrNotFound with the text of net.InterfaceByName.
func noInterface() error {
	err := &net.OpError{Op: "route", Net: "ip+net", Err: errors.New("no such network interface")}
	return fmt.Errorf("%w: %w", ErrNotFound, err)
}

// nameOf asks for the name of an interface, in the network namespace of the calling thread. It is "" if there is none of the index.
func (rs *RuleSet) nameOf(ifindex int) string {
	if rs.kernel == nil {
		return nameOf(ifindex)
	}
	for _, name := range rs.kernel.Interfaces() {
		if i, ok := rs.kernel.Interface(name); ok && i.Index == ifindex {
			return name
		}
	}
	return ""
}

// kernelHook describes a hook to Options.Kernel.
func kernelHook(ifindex int, at site, mode string) kernel.Hook {
	return kernel.Hook{
		Index:  ifindex,
		Egress: at.hook == HookEgress,
		TCX:    at.tcx,
		Mode:   mode,
		Port:   at.port,
	}
}
