package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/control"
	"github.com/flowtally/flowtally/shm"
)

const (
	// idleLeast is the pause of a flow after which the device and XDP have counted the same packets.
	idleLeast = flightTime
	// alignPeriod is how often flows are compared whose totals lack packets that passed on their way to hardware.
	alignPeriod = idleLeast / 2
)

// idleSample is a count of a flow's shadow, and since when the shadow has stood at it.
type idleSample struct {
	own    backend.Pair
	at     int64          // on the clock of shm.Now; 0: there is no sample
	moment backend.Moment // before own was read

	// The total of a flow whose shadow does not follow it, and since when, at the earliest idleLeast after at. The
	// shadow follows if both stand idleLeast later: XDP has every packet of that total by then.
	stands   backend.Pair
	standsAt int64
}

// auditor compares the totals of hardware with the shadows that count beside it (rdma.audit). Its methods are called with
// Engine.ctl held, except alignIdle.
type auditor struct {
	ctl      control.Lock
	mover    *mover
	arranger *arranger
	flows    map[string]*flowState // Engine.flows
}

// audit compares hardware with the shadows of all offloaded flows. It compares a flow only when no packet of the flow has
// passed for idleLeast, because the two are never read at one instant. Packets that a total lacks since it went to
// hardware under traffic are added then. A shadow that did not follow the total does from then on. A later difference is an
// error of hardware or of XDP, and becomes a condition.
func (a *auditor) audit(now time.Time) (differ []dataplane.Condition) {
	s := a.mover.stack
	if s == nil || !s.audit {
		return nil
	}
	for _, c := range a.arranger.stackFlows() {
		if a.auditFlow(c); c.differs != "" {
			differ = append(differ, dataplane.Condition{
				Code: dataplane.CodeRDMAAuditDiffers, Severity: dataplane.High, Object: c.Name, Text: c.differs,
				Fix: "set the flow's backend to xdp, and report the device and the flow", Since: now,
			})
		}
	}
	return differ
}

// auditFlow compares one offloaded flow with its shadow.
func (a *auditor) auditFlow(c *flowState) {
	if !c.offloaded || c.gone != nil || !a.mover.shadowComplete(c) && !a.mayFollowAgain(c) {
		c.lastIdle = idleSample{}
		c.differs = ""
		return
	}
	var added backend.Pair
	follows := false // from now on
	err := a.mover.plan.AddMissed(c.handle, func(stands backend.Pair, sampled int64) (lacks backend.Pair) {
		now := a.mover.stack.software.Now()
		own, err := backend.ReadOne(a.mover.stack.software, c.shadow.ID)
		if err != nil || own != c.lastIdle.own || c.lastIdle.at == 0 {
			c.lastIdle = idleSample{own: own, at: shm.Now(), moment: now}
			return backend.Pair{}
		}
		if sampled < c.lastIdle.at+int64(idleLeast) {
			return backend.Pair{}
		}
		c.differs = ""
		if !c.follows {
			if c.lastIdle.standsAt == 0 || stands != c.lastIdle.stands {
				c.lastIdle.stands = stands
				c.lastIdle.standsAt = shm.Now()
			} else if shm.Now() >= c.lastIdle.standsAt+int64(idleLeast) {
				follows = true
				c.shadowBase = backend.Sub(stands, own)
			}
			return backend.Pair{}
		}
		expected := backend.Add(c.shadowBase, own)
		switch {
		case stands == expected:
		case c.needsAlign && stands.Packets < expected.Packets && c.basis == c.shadow.Basis:
			lacks = backend.Sub(expected, stands)
		case stands.Packets != expected.Packets:
			c.differs = fmt.Sprintf("hardware has counted %d packets, XDP beside it %d", stands.Packets, expected.Packets)
		}
		c.needsAlign = false
		c.base = backend.Add(c.base, lacks)
		added = lacks
		return lacks
	})
	if err != nil {
		c.lastIdle = idleSample{}
	}
	if follows {
		a.follow(c)
	}
	if added.Packets > 0 {
		a.mover.sendMoved(c, fmt.Sprintf("%d packets that passed while it went there are added, as XDP counted them beside", added.Packets), false)
	}
}

// waitsForPause reports whether the next pause of a flow makes its total, or its shadow, exact.
func (a *auditor) waitsForPause(c *flowState) bool {
	return c.offloaded && (c.needsAlign && a.mover.shadowComplete(c) || a.mayFollowAgain(c))
}

// mayFollowAgain reports whether the shadow of an offloaded flow that does not follow its total counts the same packets now.
func (a *auditor) mayFollowAgain(c *flowState) bool {
	if c.follows || c.hardware.Takes || len(c.lost) > 0 || !c.hasShadow { // with audit, each flow has a shadow
		return false
	}
	since, ok := a.mover.stack.software.CompleteSince(c.Placed)
	return ok && (c.lastIdle.at == 0 || !since.After(c.lastIdle.moment))
}

// follow notes that the shadow of an offloaded flow follows its total, as of lastIdle.
func (a *auditor) follow(c *flowState) {
	past := c.goesOn(besideHardware(c.shadow.Cookie), c.shadowBase)
	past.Seen = uint32(c.lastIdle.moment)
	if err := a.mover.writeContinuity(c, past); err != nil {
		a.mover.log.Warn("noting that XDP counts a flow beside hardware", "flow", c.Name, "err", err)
		return
	}
	c.follows = true
}

// alignIdle compares the flows that wait for a pause, and reports whether some still do. audit alone would miss
// most pauses of a flow's traffic, because it runs only once per healthPeriod. It takes Engine.ctl if that is free.
func (a *auditor) alignIdle() (more bool) {
	if !a.ctl.TryLock() {
		return true
	}
	defer a.ctl.Unlock()
	s := a.mover.stack
	if s == nil {
		return false
	}
	s.toAlign = slices.DeleteFunc(s.toAlign, func(c *flowState) bool {
		if a.flows[c.Name] != c || !a.waitsForPause(c) {
			return true
		}
		a.auditFlow(c)
		return !a.waitsForPause(c)
	})
	return len(s.toAlign) > 0
}

// alignAtEnd takes the total of each flow that still lacks packets from its shadow. It is called at the end of the
// instance, before the last cycle.
func (a *auditor) alignAtEnd() {
	if a.mover.stack == nil {
		return
	}
	for _, c := range a.mover.stack.toAlign {
		if !c.needsAlign || !c.offloaded || c.gone != nil || c.basis != c.shadow.Basis || !a.mover.shadowComplete(c) {
			continue
		}
		err := a.mover.plan.ChangeSource(c.handle, func(stands backend.Pair) (backend.Counters, uint32, backend.Pair, error) {
			own, err := backend.ReadOne(a.mover.stack.software, c.shadow.ID)
			if err == nil && backend.Add(c.shadowBase, own).Packets < stands.Packets { // a total does not fall
				return a.mover.stack.hardware, c.hardware.ID, c.base, nil
			}
			return a.mover.stack.software, c.shadow.ID, c.shadowBase, err
		})
		if err != nil {
			a.mover.log.Warn("ending a total as XDP counted it beside", "flow", c.Name, "err", err)
		}
	}
}
