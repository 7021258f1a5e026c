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

// The methods in this file ask Options.Kernel, or the kernel of the host if that is nil.

// cpus returns the number of possible CPUs.
func (dp *Datapath) cpus() (int, error) {
	if dp.kernel != nil {
		return dp.kernel.CPUs()
	}
	return ebpf.PossibleCPU()
}

// lockPins makes and locks the directory of the pins.
func (dp *Datapath) lockPins() (*os.File, error) {
	if dp.kernel != nil {
		return dp.kernel.LockPins(dp.dir)
	}
	return lockDir(dp.dir)
}

// openLink opens a pinned link.
func (dp *Datapath) openLink(path string) (link.Link, error) {
	if dp.kernel != nil {
		return dp.kernel.OpenLink(path)
	}
	return link.LoadPinnedLink(path, nil)
}

// interfaceByName looks up an interface in the network namespace of the calling thread.
func (dp *Datapath) interfaceByName(name string) (*net.Interface, device, error) {
	if dp.kernel == nil {
		return interfaceByName(name)
	}
	i, ok := dp.kernel.Interface(name)
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

// noInterface returns an ErrNotFound with the text of net.InterfaceByName.
func noInterface() error {
	err := &net.OpError{Op: "route", Net: "ip+net", Err: errors.New("no such network interface")}
	return fmt.Errorf("%w: %w", ErrNotFound, err)
}

// nameOf returns the name of an interface in the network namespace of the calling thread, or "" if no interface has this index.
func (dp *Datapath) nameOf(ifindex int) string {
	if dp.kernel == nil {
		return nameOf(ifindex)
	}
	for _, name := range dp.kernel.Interfaces() {
		if i, ok := dp.kernel.Interface(name); ok && i.Index == ifindex {
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
