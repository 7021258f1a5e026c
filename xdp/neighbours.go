package xdp

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/kernel"
	"github.com/flowtally/flowtally/xdp/dispatcher"
)

// Neighbour is another owner's program on our hook: on the same TCX hook, or in the same dispatcher.
type Neighbour struct {
	Program uint32 // id
	Link    uint32 // id; 0 for a component, or a program attached without a link
	Name    string // "" without CAP_SYS_ADMIN
}

func (n Neighbour) String() string {
	if n.Name == "" {
		return fmt.Sprintf("program id %d", n.Program)
	}
	return fmt.Sprintf("program %q (id %d)", n.Name, n.Program)
}

// Before lists the programs that run before ours on a hook, in order. Our program does not see packets that one of them drops or
// redirects. The interface is looked up in the network namespace of the calling thread.
func (dp *Datapath) Before(ifname string, at Hook) ([]Neighbour, error) {
	if err := dp.enter(); err != nil {
		return nil, err
	}
	defer dp.mu.Unlock()

	port, ok := dp.meta.portOf(ifname)
	if !ok {
		return nil, nil
	}
	if h := dp.hooks[hookKey{port, at}]; h != nil && (h.tcx || h.component) && h.alive() {
		return h.before()
	}
	return nil, nil
}

// before implements Before. It is called for every hook, so it must not list all interfaces.
func (h *hook) before() (all []Neighbour, err error) {
	if l, is := h.link.(*dispatcher.Link); is {
		err := l.Before(func(name string, id ebpf.ProgramID) {
			all = append(all, Neighbour{Program: uint32(id), Name: name})
		})
		return all, err
	}
	if _, is := h.link.(kernel.Link); is {
		return nil, nil
	}

	info, err := h.link.Info()
	if err != nil {
		return nil, fmt.Errorf("asking for the TCX link of %s: %w", h.name, err)
	}
	chain, err := link.QueryPrograms(link.QueryOptions{Target: h.ifindex, Attach: h.attachType()})
	if errors.Is(err, unix.ENODEV) {
		return nil, nil // the interface has just moved to another namespace or was deleted: the next Look finds out
	}
	if err != nil {
		return nil, fmt.Errorf("asking for the TCX programs of %s: %w", h.name, explain(err))
	}
	for _, p := range chain.Programs {
		id, _ := p.LinkID()
		if id == info.ID {
			return all, nil
		}
		all = append(all, Neighbour{Program: uint32(p.ID), Link: uint32(id), Name: programName(p.ID)})
	}
	return nil, nil // our program has just been detached: the next Look finds out
}

// programName returns the name of a program, or "" without the privilege to ask.
func programName(id ebpf.ProgramID) string {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return ""
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(info.Name)
}
