package xdp

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/flowtally/flowtally/internal/kernel"
	"github.com/flowtally/flowtally/internal/trust"
)

// holder is the XDP program on the hook of an interface.
type holder struct {
	program  uint32 // id; 0: the hook is free, or the kernel does not tell
	instance string // the instance of flowtally that pinned the program; "" for other owners
	dir      string // of the instance's pins

	among *holders
}

// holders finds out who holds XDP hooks. For the instance of a program it must list all pins, and for the link of a hook all links
// in the kernel. Such a list is cached for ten times as long as it took to make, so that questions about many interfaces
// share it.
type holders struct {
	kernel        kernel.Kernel // nil: the kernel of the host
	dirByProgram  cache[uint32, string]
	linkByProgram cache[programOn, link.ID]
}

// programOn is a program on the XDP hook of an interface. The index alone is ambiguous, because each network namespace has its own
// indexes.
type programOn struct{ ifindex, program uint32 }

// cache holds a list of the kernel's state for a while.
type cache[K comparable, V any] struct {
	valueByKey map[K]V
	err        error
	until      time.Time
}

// get looks up a key. It calls list if the cached list has expired.
func (c *cache[K, V]) get(key K, list func() (map[K]V, error)) (V, error) {
	if start := time.Now(); start.After(c.until) {
		c.valueByKey, c.err = list()
		end := time.Now()
		c.until = end.Add(10 * end.Sub(start))
	}
	return c.valueByKey[key], c.err
}

// of returns the holder of the XDP hook of an interface.
func (hs *holders) of(ifindex int) holder {
	h := holder{among: hs}
	if hs.kernel != nil {
		h.program = hs.kernel.XDPProgram(ifindex)
		return h
	}
	h.program = xdpProgram(ifindex)
	if h.program == 0 {
		return h
	}
	if dir, _ := hs.dirByProgram.get(h.program, pinnedPrograms); dir != "" {
		h.dir = dir
		h.instance = filepath.Base(dir)
	}
	return h
}

// pinnedPrograms returns the directory of the pins of each program that an instance of flowtally has attached.
func pinnedPrograms() (map[uint32]string, error) {
	all := map[uint32]string{}
	pins, _ := filepath.Glob(filepath.Join(instancesDir, "*", linkPrefix+"*"))
	for _, pin := range pins {
		l, err := link.LoadPinnedLink(pin, nil)
		if err != nil {
			continue // the instance is ending, or the pin is not a link of flowtally
		}
		info, err := l.Info()
		l.Close()
		if err == nil {
			all[uint32(info.Program)] = filepath.Dir(pin)
		}
	}
	return all, nil
}

func (h holder) String() string {
	switch {
	case h.program == 0:
		return "another program"
	case h.instance != "":
		return fmt.Sprintf("instance %s of flowtally", h.instance)
	}
	return Neighbour{Program: h.program, Name: programName(ebpf.ProgramID(h.program))}.String()
}

// fix returns a command that frees the hook. If the program has a link, ip link cannot detach it, and bpftool must.
func (h holder) fix(ifindex int, ifname string) string {
	if h.among != nil && h.among.kernel != nil {
		return "stop its owner"
	}
	if h.instance != "" {
		return "stop that instance; or, where it does not run any more: flowtally clean --pin-dir " + trust.Quote(h.dir)
	}
	off := fmt.Sprintf("ip link set dev %s xdp off", ifname)
	id, err := h.among.linkByProgram.get(programOn{uint32(ifindex), h.program}, xdpLinks)
	switch {
	case err != nil: // without CAP_SYS_ADMIN, this process cannot list links
		return "stop its owner; or: " + off + "; or, where it has a link: bpftool link list, bpftool link detach id N"
	case id != 0:
		return fmt.Sprintf("stop its owner; or: bpftool link detach id %d", id)
	}
	return "stop its owner; or: " + off
}

// xdpLinks lists the links on XDP hooks in all network namespaces. It needs CAP_SYS_ADMIN.
func xdpLinks() (map[programOn]link.ID, error) {
	all := map[programOn]link.ID{}
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		info, err := it.Link.Info()
		if err != nil {
			return all, err
		}
		if x := info.XDP(); x != nil {
			all[programOn{x.Ifindex, uint32(info.Program)}] = info.ID
		}
	}
	return all, it.Err()
}
