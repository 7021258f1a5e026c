package engine

import (
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// The shadow of a flow that hardware counts follows the flow's total, if both count the same packets. They do where hardware and
// XDP have rules of the same flows that win over it. A flow comes to XDP before it comes to hardware, and leaves hardware before it
// leaves XDP. A packet that passes in between counts for the flow that comes or goes in one of the two, and for a flow behind it in
// the other.

// mayFollow reports whether the shadow of c counts the packets of c and no others.
func (c *flowState) mayFollow() bool { return c.hasShadow && c.shadowless() == nil }

// shadowless returns a flow that wins over c, and of which XDP has no rules: XDP would count its packets for c. Fresh flows may get
// their rules yet.
func (c *flowState) shadowless() *flowState {
	for _, o := range c.winners() {
		if o.published() && !o.hasShadow {
			return o
		}
	}
	return nil
}

// errShadowless is why XDP cannot count c in the place of hardware.
func (c *flowState) errShadowless() error {
	if o := c.shadowless(); o != nil {
		return fmt.Errorf("XDP has no room for the rules of flow %q, which wins over it and is counted by %s: %w", o.Name, flow.RDMA, dataplane.ErrUnplaced)
	}
	return nil
}

// endFollowing notes that the shadow of an offloaded flow does not follow its total. A pause that began before tells nothing.
func (c *flowState) endFollowing() {
	c.follows = false
	c.lastIdle = idleSample{}
}

// unfollow notes that the shadow of an offloaded flow has counted other packets than hardware. The auditor has it follow again,
// in the next pause of the flow. Until then the total goes on with a discontinuity where hardware loses the flow.
func (m *mover) unfollow(c *flowState) error {
	c.endFollowing()
	m.awaitPause(c)
	if err := m.writeHardwareContinuity(c); err != nil {
		return fmt.Errorf("flow %q: ending the use of its shadow: %w", c.Name, err)
	}
	return nil
}

// unfollowBehind looks at the flows of a list, in which hardware has just begun to count those that have not failed. It ends the
// use of the shadows behind those that XDP has given packets before, or that XDP has no rules of. ahead are the former: flows behind
// them have those packets.
func (m *mover) unfollowBehind(list []*flowState, failed map[*flowState]error) (ahead map[*flowState]bool, err error) {
	ahead = make(map[*flowState]bool)
	comes := make(map[*flowState]bool, len(list))
	for _, c := range list {
		comes[c] = true
	}
	for _, c := range list {
		if failed[c] != nil {
			continue
		}
		// The flows behind one that XDP has counted until now are not in hardware, or come with it.
		if c.hasShadow && (c.published() || c.shadow.Adopted) {
			continue
		}
		behind := slices.DeleteFunc(c.following(), func(o *flowState) bool { return comes[o] })
		if len(behind) == 0 {
			continue
		}
		if c.hasShadow {
			own, err := backend.ReadOne(m.stack.software, c.shadow.ID)
			if err != nil {
				return nil, fmt.Errorf("flow %q: reading its shadow: %w", c.Name, err)
			}
			if own.Packets == 0 {
				continue
			}
			ahead[c] = true
		}
		for _, o := range behind {
			if err := m.unfollow(o); err != nil {
				return nil, err
			}
		}
	}
	return ahead, nil
}

// following returns the flows behind c that hardware counts, and whose shadows follow.
func (c *flowState) following() (list []*flowState) {
	for _, o := range c.below {
		if o.offloaded && o.follows && o.published() {
			list = append(list, o)
		}
	}
	return list
}

// removal is a removal of flows from hardware, and then from XDP.
type removal struct {
	flows []*flowState   // that flows behind them follow
	count []backend.Pair // of their shadows, while hardware counted them
	gone  map[*flowState]bool
}

// beginRemoval is called before flows are removed from hardware.
func (m *mover) beginRemoval(all []*flowState) (r removal, err error) {
	r.gone = make(map[*flowState]bool, len(all))
	for _, c := range all {
		r.gone[c] = true
	}
	for _, c := range all {
		if c.offload == nil || !c.offloaded || !c.hasShadow || len(c.following()) == 0 {
			continue
		}
		own, err := backend.ReadOne(m.stack.software, c.shadow.ID)
		if err != nil {
			return r, fmt.Errorf("flow %q: reading its shadow: %w", c.Name, err)
		}
		r.flows, r.count = append(r.flows, c), append(r.count, own)
	}
	return r, nil
}

// end is called when the flows are removed from both. It ends the use of the shadows behind those that XDP has given packets
// meanwhile. Their slots can still be read: no other flow has got them.
func (r removal) end(m *mover) error {
	for i, c := range r.flows {
		own, err := backend.ReadOne(m.stack.software, c.shadow.ID)
		if err != nil {
			return fmt.Errorf("flow %q: reading its shadow: %w", c.Name, err)
		}
		if own == r.count[i] {
			continue
		}
		for _, o := range c.following() {
			if r.gone[o] {
				continue
			}
			if err := m.unfollow(o); err != nil {
				return err
			}
		}
	}
	return nil
}
