package engine

import (
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// A shadow is XDP's copy of a flow that hardware counts. It follows the total of the flow while both count the same packets: each
// flow that wins over this one must have rules in both. A flow enters XDP before hardware, and leaves hardware first. A packet in
// between counts for that flow on one side, and for a flow behind it on the other.

// mayFollow reports whether the shadow of c counts the packets of c and no others.
func (c *flowState) mayFollow() bool { return c.hasShadow && c.winnerWithoutShadow("") == nil }

// winnerWithoutShadow returns a flow that wins over c on an interface, or on any where ifname is "", and of which XDP has no rules:
// XDP would count its packets for c. Unpublished flows may still get rules.
func (c *flowState) winnerWithoutShadow(ifname string) *flowState {
	for _, o := range c.winners() {
		meets := ifname == "" || o.Interface == "" || o.Interface == ifname
		if meets && o.published() && !o.hasShadow {
			return o
		}
	}
	return nil
}

// uncountable returns why XDP cannot count c in the place of hardware, on an interface or on all where ifname is "".
func (c *flowState) uncountable(ifname string) error {
	if o := c.winnerWithoutShadow(ifname); o != nil {
		return fmt.Errorf("XDP has no room for the rules of flow %q, which wins over it and is counted by %s: %w", o.Name, flow.RDMA, dataplane.ErrUnplaced)
	}
	return nil
}

// stopFollowing notes that the shadow of c does not follow its total. An earlier idle sample is void.
func (c *flowState) stopFollowing() {
	c.follows = false
	c.lastIdle = idleSample{}
}

// unfollow notes that the shadow of a flow has counted other packets than hardware. With audit it follows again from the next pause
// of the flow on. Until then the total gets a discontinuity if hardware loses the flow.
func (m *mover) unfollow(c *flowState) error {
	if c.needsAlign && m.stack.audit { // the shadow cannot tell any more which packets the total lacks
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

// unfollowAll is unfollow for flows that have changed places already: an error of the mirror ends nothing.
func (m *mover) unfollowAll(list []*flowState) {
	for _, c := range list {
		if err := m.unfollow(c); err != nil {
			m.log.Error("noting that XDP counts other packets than hardware", "err", err)
		}
	}
}

// unfollowBehind looks at a list of flows in which hardware has just begun to count those that have not failed. Shadows behind
// them stop following if XDP gave such a flow packets before, or has no rules of it. ahead holds the former: hardware counted those
// packets for flows behind them.
func (m *mover) unfollowBehind(list []*flowState, failed map[*flowState]error) (ahead map[*flowState]bool) {
	ahead = make(map[*flowState]bool)
	entering := make(map[*flowState]bool, len(list))
	for _, c := range list {
		entering[c] = true
	}

	for _, c := range list {
		if failed[c] != nil || c.hasShadow && c.published() { // in XDP until now: flows behind it are there, or enter with it
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

// behind returns the published flows over which c wins, and for which is holds.
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

// removal is a removal of flows from hardware, and then from XDP.
type removal struct {
	flows []*flowState   // removed flows with followers behind them
	count []backend.Pair // of their shadows, while hardware counted them
	gone  map[*flowState]bool
}

// beginRemoval is called before flows are removed from hardware.
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
		if err != nil { // as if it had changed
			own.Packets = ^uint64(0)
		}
		r.flows = append(r.flows, c)
		r.count = append(r.count, own)
	}
	return r
}

// followers returns the flows behind c that hardware counts and goes on counting, and whose shadows follow.
func (r removal) followers(c *flowState) []*flowState {
	return c.behind(func(o *flowState) bool { return o.offloaded && o.follows && !r.gone[o] })
}

// end is called when the flows are removed from both. Shadows behind a flow to which XDP gave packets meanwhile stop following. The
// slots can still be read: no other flow has got them.
func (r removal) end(m *mover) {
	for i, c := range r.flows {
		own, err := backend.ReadOne(m.stack.software, c.shadow.ID)
		if err != nil || own != r.count[i] {
			m.unfollowAll(r.followers(c))
		}
	}
}
