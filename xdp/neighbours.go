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

// Neighbour is a TCX program of another owner on a hook that this rule set holds.
type Neighbour struct {
	Program uint32 // its id
	Link    uint32 // the id of its link; 0 when it was attached without one
	Name    string // "" where this process may not ask for it: that takes CAP_SYS_ADMIN
}

func (n Neighbour) String() string {
	if n.Name == "" {
		return fmt.Sprintf("program id %d", n.Program)
	}
	return fmt.Sprintf("program %q (id %d)", n.Name, n.Program)
}

// Before lists the TCX programs, or the components of the libxdp dispatcher, that run before ours on a hook of an interface, in
// their order. Each of them can end the chain: ours does not see the packet then. The interface is
// looked up in the network namespace of the calling thread.
func (rs *RuleSet) Before(ifname string, at Hook) ([]Neighbour, error) {
	if err := rs.enter(); err != nil {
		return nil, err
	}
	defer rs.mu.Unlock()
	port, ok := rs.meta.portOf(ifname)
	if !ok {
		return nil, nil
	}
	if h := rs.hooks[hookKey{port, at}]; h != nil && (h.tcx || h.component) && h.alive() {
		return h.before()
	}
	return nil, nil
}

// before asks for one interface by its number, and for no list of interfaces: the caller asks about each hook.
func (h *hook) before() ([]Neighbour, error) {
	if s, is := h.link.(*dispatcher.Link); is {
		var out []Neighbour
		err := s.Before(func(name string, id ebpf.ProgramID) { out = append(out, Neighbour{Program: uint32(id), Name: name}) })
		return out, err
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
		return nil, nil // moved to another namespace, or removed since: the next look at the interface lets go of it
	}
	if err != nil {
		return nil, fmt.Errorf("asking for the TCX programs of %s: %w", h.name, explain(err))
	}
	var out []Neighbour
	for _, p := range chain.Programs {
		id, _ := p.LinkID()
		if id == info.ID {
			return out, nil
		}
		out = append(out, Neighbour{Program: uint32(p.ID), Link: uint32(id), Name: programNamed(p.ID)})
	}
	return nil, nil // detached since: the next look takes the hook again
}

// programNamed is the name of a program, or "" where this process may not ask.
func programNamed(id ebpf.ProgramID) string {
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
