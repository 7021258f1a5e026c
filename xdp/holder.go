package xdp

import (
	"fmt"
	"net"

	"github.com/flowtally/flowtally/xdp/dispatcher"
)

// Holder describes another owner's program on the XDP hook of an interface.
type Holder struct {
	Text       string // the instance of flowtally, or name and id of the program
	Fix        string // how to free the hook
	Dispatcher bool   // the program is a libxdp dispatcher
}

// HolderOf returns the holder of an XDP hook. ok is false if the hook is free. Call it only for interfaces without an XDP program
// of this Datapath. The interface is looked up in the network namespace of the calling thread.
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
