package xdp

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/xdp"
)

// defaultFreeFor gives the owner of an XDP program time to replace it or to restart. If we took the hook in that moment, the
// owner could not attach again.
const defaultFreeFor = 30 * time.Second

// beside watches the XDP hooks of interfaces where we count by TCX, because another program holds the XDP hook. When the holder
// leaves, counting moves to XDP, which sees packets earlier.
type beside struct {
	holder map[string]xdp.Holder // by interface
	joins  map[string]bool       // by interface: the holder is a libxdp dispatcher, and we have not tried to join it yet
	free   map[string]time.Time  // by interface: since when the hook is free; zero once we have tried to move
	period time.Duration         // Options.FreeFor
}

func newBeside(freeFor time.Duration) beside {
	return beside{
		period: cmp.Or(freeFor, defaultFreeFor),
		holder: make(map[string]xdp.Holder),
		free:   make(map[string]time.Time),
		joins:  make(map[string]bool),
	}
}

// note notes what a look at the XDP hook of a TCX interface has found. We have to look now and then: the kernel sends no event.
func (b *beside) note(a xdp.Attachment, holder xdp.Holder, taken bool, now time.Time) {
	_, waits := b.free[a.Interface]
	switch {
	case taken:
		if b.holder[a.Interface] != holder {
			b.joins[a.Interface] = holder.Dispatcher
		}
		b.holder[a.Interface] = holder
		delete(b.free, a.Interface)
		return
	case b.holder[a.Interface] != (xdp.Holder{}), a.Adopted && !waits:
		b.free[a.Interface] = now // the holder has left, perhaps while no process of ours ran
	}
	delete(b.holder, a.Interface)
}

// forget drops the state of interfaces where we do not count by TCX any more.
func (b *beside) forget(byTCX map[string]bool) {
	for name := range b.holder {
		if !byTCX[name] {
			delete(b.holder, name)
		}
	}
	for name := range b.joins {
		if !byTCX[name] {
			delete(b.joins, name)
		}
	}
	for name := range b.free {
		if !byTCX[name] {
			delete(b.free, name)
		}
	}
}

// retakes reports whether to move an interface to XDP now: its hook was free for long enough, or a dispatcher can be joined.
// It says so once. If the move fails, counting stays with TCX until the next holder has left.
func (b *beside) retakes(name string, now time.Time) bool {
	if b.joins[name] {
		b.joins[name] = false
		return true
	}
	since := b.free[name]
	if since.IsZero() || now.Sub(since) < b.period {
		return false
	}
	b.free[name] = time.Time{}
	return true
}

// dispatcherCondition returns the condition of counting inside a libxdp dispatcher. The components of before run before ours.
func dispatcherCondition(ifname string, before []xdp.Neighbour) dataplane.Condition {
	c := dataplane.Condition{
		Code: dataplane.CodeXDPBeside, Severity: dataplane.Low, Object: ifname,
		Text: "a libxdp dispatcher holds the XDP hook, and received packets are counted in it, by a component in front of all others: each " +
			"packet is counted, and a packet that a flow drops reaches none of the others",
		Fix: "no step is needed; xdp-loader status lists the components",
	}
	if len(before) > 0 {
		var names []string
		for _, n := range before {
			names = append(names, n.String())
		}
		c.Severity = dataplane.Medium
		c.Text = "a libxdp dispatcher holds the XDP hook, and received packets are counted in it behind these components: " + strings.Join(names, ", ") +
			"; packets that they drop, send back or redirect are not counted, and packets that they change are counted as they leave them"
		c.Fix = "load these programs with a priority above 0: xdp-loader status lists the components"
	}
	return c
}

// besideCondition returns the condition of counting by TCX behind somebody else's XDP program.
func besideCondition(ifname string, holder xdp.Holder) dataplane.Condition {
	return dataplane.Condition{
		Code: dataplane.CodeXDPBeside, Severity: dataplane.Medium, Object: ifname,
		Text: fmt.Sprintf("%s holds the XDP hook, and received packets are counted behind it, by TCX: packets that it drops, sends back, "+
			"redirects or gives to an AF_XDP socket are not counted, and packets that it changes are counted as it leaves them", holder.Text),
		Fix: holder.Fix + "; counting moves to XDP by itself when the hook has been free for 30 s. If counting behind it is intended, no step is needed",
	}
}
