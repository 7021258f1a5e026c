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

// holder describes the XDP program that holds the hook of an interface.
type holder struct {
	program  uint32 // its id; 0: nothing is known
	instance string // of flowtally, whose pins hold it; "" where none does
	dir      string // of those pins

	among *holders
}

// holders answers who holds the XDP hooks of interfaces. To find the instance of a program, or the link of a hook, it lists
// all pins, or all links of the kernel. The lists serve for ten times as long as it took to make them, so that the questions
// about many interfaces cost no list each.
type holders struct {
	kernel kernel.Kernel           // nil: the kernel of the host
	pins   listed[uint32, string]  // by program: the directory of its pin
	links  listed[hooked, link.ID] // by hook: its XDP link
}

// hooked is a program on the XDP hook of an interface. Each network namespace numbers its interfaces by itself, so the
// number of the interface alone could be that of another one.
type hooked struct{ ifindex, program uint32 }

type listed[K comparable, V any] struct {
	of    map[K]V
	err   error
	until time.Time
}

func (l *listed[K, V]) get(k K, list func() (map[K]V, error)) (V, error) {
	if start := time.Now(); start.After(l.until) {
		l.of, l.err = list()
		end := time.Now()
		l.until = end.Add(10 * end.Sub(start))
	}
	return l.of[k], l.err
}

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
	if dir, _ := hs.pins.get(h.program, pinnedPrograms); dir != "" {
		h.dir, h.instance = dir, filepath.Base(dir)
	}
	return h
}

// pinnedPrograms lists the programs of the links that instances have pinned, with the directories of the pins.
func pinnedPrograms() (map[uint32]string, error) {
	all := map[uint32]string{}
	pins, _ := filepath.Glob(filepath.Join(instancesDir, "*", linkPrefix+"*"))
	for _, pin := range pins {
		l, err := link.LoadPinnedLink(pin, nil)
		if err != nil {
			continue // of an instance that ends, or not of flowtally
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
	return Neighbour{Program: h.program, Name: programNamed(ebpf.ProgramID(h.program))}.String()
}

// freed returns advice on how to free the hook of an interface. ip link cannot detach a program that a link
// attached, and flowtally attaches its programs by links.
func (h holder) freed(ifindex int, ifname string) string {
	if h.among != nil && h.among.kernel != nil {
		return "stop its owner"
	}
	if h.instance != "" {
		return "stop that instance; or, where it does not run any more: flowtally clean --pin-dir " + trust.Quote(h.dir)
	}
	off := fmt.Sprintf("ip link set dev %s xdp off", ifname)
	id, err := h.among.links.get(hooked{uint32(ifindex), h.program}, xdpLinks)
	switch {
	case err != nil: // this process may not look at links
		return "stop its owner; or: " + off + "; or, where it has a link: bpftool link list, bpftool link detach id N"
	case id != 0:
		return fmt.Sprintf("stop its owner; or: bpftool link detach id %d", id)
	}
	return "stop its owner; or: " + off
}

// xdpLinks lists the links that hold XDP hooks, of all network namespaces. It takes CAP_SYS_ADMIN.
func xdpLinks() (map[hooked]link.ID, error) {
	all := map[hooked]link.ID{}
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		info, err := it.Link.Info()
		if err != nil {
			return all, err
		}
		if x := info.XDP(); x != nil {
			all[hooked{x.Ifindex, uint32(info.Program)}] = info.ID
		}
	}
	return all, it.Err()
}
