package engine

import (
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// A shadow is XDP's copy of a flow that hardware counts. It follows the total of the flow while both count the same packets.
// For that, each flow that wins over this one must have rules in both. But a flow enters XDP before hardware, and leaves
// hardware before XDP. In between, one of the two counts its packets for it, and the other for a flow behind it, whose
// shadow must stop following.

// mayFollow reports whether the shadow of c counts exactly the packets of c.
func (c *flowState) mayFollow() bool { return c.hasShadow && c.winnerWithoutShadow("") == nil }

// winnerWithoutShadow returns a flow that wins over c on an interface and has no rules in XDP, or nil. XDP would count the packets
// of such a flow for c. An empty ifname means any interface. Unpublished flows do not count here: they may still get rules.
func (c *flowState) winnerWithoutShadow(ifname string) *flowState {
	for _, o := range c.winners() {
		meets := ifname == "" || o.Interface == "" || o.Interface == ifname
		if meets && o.published() && !o.hasShadow {
			return o
		}
	}
	return nil
}

// uncountable returns why XDP cannot take c over from hardware on an interface, or nil. An empty ifname means all interfaces.
func (c *flowState) uncountable(ifname string) error {
	if o := c.winnerWithoutShadow(ifname); o != nil {
		return fmt.Errorf("XDP has no room for the rules of flow %q, which wins over it and is counted by %s: %w", o.Name, flow.RDMA, dataplane.ErrUnplaced)
	}
	return nil
}

// stopFollowing notes that the shadow of c does not follow its total any more. That voids an earlier idle sample.
func (c *flowState) stopFollowing() {
	c.follows = false
	c.lastIdle = idleSample{}
}

// unfollow notes that the shadow of a flow has counted other packets than hardware. If hardware loses the flow now, the total gets
// a discontinuity. With audit this lasts only until the traffic of the flow pauses: then the shadow follows again.
func (m *mover) unfollow(c *flowState) error {
	if c.needsAlign && m.stack.audit { // only a following shadow could have told which packets the total lacks
		c.needsAlign = false
		c.past.Discontinuities++
		m.sendMoved(c, "packets that passed while it went there cannot be added any more", true)
	}
	c.stopFollowing()
	m.awaitPause(c)
	if err := m.writeHardwareContinuity(c); err != nil {
		return fmt.Errorf("flow %q: ending the use of its shadow: %w", c.Name, err)
	}
	return nil
}

// unfollowAll calls unfollow for each flow. It is too late to refuse the change, so errors are only logged.
func (m *mover) unfollowAll(list []*flowState) {
	for _, c := range list {
		if err := m.unfollow(c); err != nil {
			m.log.Error("noting that XDP counts other packets than hardware", "err", err)
		}
	}
}

// unfollowBehind is called when hardware has just begun to count the flows of a list, except those in failed. If XDP has counted
// packets for such a flow already, hardware has counted them for flows behind it, and if XDP has no rules of it, XDP counts its
// packets for them. In both cases the shadows behind it stop following. ahead has the flows of the first case.
func (m *mover) unfollowBehind(list []*flowState, failed map[*flowState]error) (ahead map[*flowState]bool) {
	ahead = make(map[*flowState]bool)
	entering := make(map[*flowState]bool, len(list))
	for _, c := range list {
		entering[c] = true
	}

	for _, c := range list {
		if failed[c] != nil || c.hasShadow && c.published() { // XDP counted it until now, so the flows behind it are in XDP, too, or enter with it
			continue
		}
		behind := c.behind(func(o *flowState) bool { return !entering[o] && (o.offloaded || o.gone != nil) })
		if len(behind) == 0 {
			continue
		}
		if c.hasShadow {
			own, err := backend.ReadOne(m.stack.software, c.shadow.ID)
			if err == nil && own.Packets == 0 {
				continue
			}
			ahead[c] = true
		}
		m.unfollowAll(slices.DeleteFunc(behind, func(o *flowState) bool { return !o.follows }))
	}
	return ahead
}

// declareTaken declares a loss of the flows in hardware behind those of a list. The list was in hardware for a while and is not any
// more, so hardware has counted packets for flows that do not exist.
func (m *mover) declareTaken(list []*flowState) {
	declared := make(map[*flowState]bool)
	for _, c := range list {
		declared[c] = true
	}
	for _, c := range list {
		for _, o := range c.behind(func(o *flowState) bool { return o.offloaded && !declared[o] }) {
			declared[o] = true
			o.past.Discontinuities++
			m.sendMoved(o, fmt.Sprintf("hardware counted for flow %q for a while, and not any more", c.Name), true)
			m.unfollowAll([]*flowState{o})
		}
	}
}

// behind returns the published flows over which c wins and for which is returns true.
func (c *flowState) behind(is func(*flowState) bool) (list []*flowState) {
	for _, o := range c.below {
		if o.published() && is(o) {
			list = append(list, o)
		}
	}
	return list
}

// winsInSoftware reports whether c wins over a flow that XDP counts.
func (c *flowState) winsInSoftware() bool {
	return len(c.behind(func(o *flowState) bool { return !o.offloaded })) > 0
}

// removal observes flows while they are removed from hardware, and then from XDP.
type removal struct {
	flows []*flowState        // those with following shadows behind them
	count []backend.Pair      // of the shadow of each, from before
	gone  map[*flowState]bool // all flows that are removed
}

// beginRemoval must be called before the flows are removed from hardware.
func (m *mover) beginRemoval(all []*flowState) removal {
	r := removal{gone: make(map[*flowState]bool, len(all))}
	for _, c := range all {
		r.gone[c] = true
	}
	for _, c := range all {
		if c.offload == nil || !c.offloaded || !c.hasShadow || len(r.followers(c)) == 0 {
			continue
		}
		own, err := backend.ReadOne(m.stack.software, c.shadow.ID)
		if err != nil { // to be safe, as if packets had passed
			own.Packets = ^uint64(0)
		}
		r.flows = append(r.flows, c)
		r.count = append(r.count, own)
	}
	return r
}

// followers returns the flows behind c that stay in hardware, and whose shadows follow.
func (r removal) followers(c *flowState) []*flowState {
	return c.behind(func(o *flowState) bool { return o.offloaded && o.follows && !r.gone[o] })
}

// end must be called once XDP has no rules of the flows either. If packets of a flow have passed since beginRemoval, the shadows
// behind it stop following. Its slot can still be read, because no other flow has been given it yet.
func (r removal) end(m *mover) {
	for i, c := range r.flows {
		own, err := backend.ReadOne(m.stack.software, c.shadow.ID)
		if err != nil || own != r.count[i] {
			m.unfollowAll(r.followers(c))
		}
	}
}
