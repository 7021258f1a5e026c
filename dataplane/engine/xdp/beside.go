package xdp

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/xdp"
)

// defaultFreeFor is long enough for a program that is replaced, or whose owner restarts, to find its hook free. flowtally
// would hold it against the owner.
const defaultFreeFor = 30 * time.Second

// beside follows the XDP programs of other owners on interfaces that are counted by TCX.
type beside struct {
	holder map[string]xdp.Holder // by interface
	joins  map[string]bool       // interfaces whose holder is a libxdp dispatcher that was not tried
	free   map[string]time.Time  // by interface whose holder has left: the first time at which the hook was free; zero after a move
	period time.Duration         // Options.FreeFor
}

func newBeside(freeFor time.Duration) beside {
	return beside{period: cmp.Or(freeFor, defaultFreeFor), holder: make(map[string]xdp.Holder), free: make(map[string]time.Time), joins: make(map[string]bool)}
}

// note notes the holder of the XDP hook of an interface that is counted by TCX. The kernel sends no event.
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
		b.free[a.Interface] = now // the holder has left; before an adopted program there may have been one
	}
	delete(b.holder, a.Interface)
}

// forget drops the state of interfaces that are not counted by TCX.
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

// retakes reports whether the XDP hook of an interface has been free for long enough, or has a dispatcher to join. It is
// tried once.
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

// dispatcherCondition is the condition of a place in a libxdp dispatcher, behind some components.
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

// besideCondition is the condition of an XDP program of another owner before our program of TCX.
func besideCondition(ifname string, holder xdp.Holder) dataplane.Condition {
	return dataplane.Condition{
		Code: dataplane.CodeXDPBeside, Severity: dataplane.Medium, Object: ifname,
		Text: fmt.Sprintf("%s holds the XDP hook, and received packets are counted behind it, by TCX: packets that it drops, sends back, "+
			"redirects or gives to an AF_XDP socket are not counted, and packets that it changes are counted as it leaves them", holder.Text),
		Fix: holder.Fix + "; counting moves to XDP by itself when the hook has been free for 30 s. If counting behind it is intended, no step is needed",
	}
}
