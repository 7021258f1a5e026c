package xdp

import (
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// holder describes the XDP program that holds the hook of an interface.
type holder struct {
	program  uint32 // its id; 0: nothing is known
	instance string // of flowtally, whose pins hold it; "" where none does
	dir      string // of those pins
}

func holderOf(ifindex int) holder {
	h := holder{program: xdpProgram(ifindex)}
	if h.program == 0 {
		return h
	}
	pins, _ := filepath.Glob(filepath.Join(instancesDir, "*", linkPrefix+"*"))
	for _, pin := range pins {
		l, err := link.LoadPinnedLink(pin, nil)
		if err != nil {
			continue // of an instance that ends, or not of flowtally
		}
		info, err := l.Info()
		l.Close()
		if err == nil && uint32(info.Program) == h.program {
			h.dir = filepath.Dir(pin)
			h.instance = filepath.Base(h.dir)
			break
		}
	}
	return h
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
	if h.instance != "" {
		return fmt.Sprintf("stop that instance; or, where it does not run any more: rm -r %s", h.dir)
	}
	off := fmt.Sprintf("ip link set dev %s xdp off", ifname)
	id, err := xdpLink(ifindex)
	switch {
	case err != nil: // this process may not look at links
		return "stop its owner; or: " + off + "; or, where it has a link: bpftool link list, bpftool link detach id N"
	case id != 0:
		return fmt.Sprintf("stop its owner; or: bpftool link detach id %d", id)
	}
	return "stop its owner; or: " + off
}

// xdpLink returns the id of the link that holds the XDP hook of an interface; 0 without a link. It takes CAP_SYS_ADMIN.
func xdpLink(ifindex int) (link.ID, error) {
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		info, err := it.Link.Info()
		if err != nil {
			return 0, err
		}
		if x := info.XDP(); x != nil && x.Ifindex == uint32(ifindex) {
			return info.ID, nil
		}
	}
	return 0, it.Err()
}
