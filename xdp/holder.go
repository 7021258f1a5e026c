package xdp

import (
	"fmt"
	"net"

	"github.com/flowtally/flowtally/xdp/dispatcher"
)

// Holder describes the program of another owner on the XDP hook of an interface.
type Holder struct {
	Text       string // its instance of flowtally, or its name and id
	Fix        string // how to free the hook
	Dispatcher bool   // it is a libxdp dispatcher
}

// HolderOf returns the holder of the XDP hook of an interface on which this process has no XDP program. ok is false if the
// hook is free. The interface is looked up in the network namespace of the calling thread.
func (dp *Datapath) HolderOf(ifindex int, ifname string) (_ Holder, ok bool) {
	if dp.enter() != nil {
		return Holder{}, false
	}
	defer dp.mu.Unlock()

	h := dp.holders.of(ifindex)
	if h.program == 0 {
		return Holder{}, false
	}
	return Holder{
		Text:       h.String(),
		Fix:        h.fix(ifindex, ifname),
		Dispatcher: dp.kernel == nil && dispatcher.Holds(ifindex),
	}, true
}

func busyError(feature string, ifi *net.Interface, h holder) error {
	return fmt.Errorf("%s on %s: %w by %s; %s", feature, ifi.Name, ErrBusy, h, h.fix(ifi.Index, ifi.Name))
}
