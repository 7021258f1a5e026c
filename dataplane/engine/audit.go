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
	// idleLeast is how long the traffic of a flow must pause before we compare its counters: after that no packet is on
	// its way between the device and XDP.
	idleLeast = flightTime
	// alignPeriod is how often we look whether a flow that waits for a pause has one.
	alignPeriod = idleLeast / 2
)

// idleSample is a count of a flow's shadow, and the time since when the shadow has not changed.
type idleSample struct {
	own    backend.Pair
	at     int64          // on the clock of shm.Now; 0: there is no sample
	moment backend.Moment // before own was read

	// The total, and the time when it was read: idleLeast after at, or later. If neither has changed another idleLeast
	// later, XDP has every packet of that total: a received packet is in the total first.
	total   backend.Pair
	totalAt int64
}

// auditor compares the totals of hardware with the shadows that count beside it (rdma.audit). Its methods are called with
// Engine.ctl held, except alignIdle.
type auditor struct {
	ctl      control.Lock
	mover    *mover
	arranger *arranger
	flows    map[string]*flowState // Engine.flows
}

// audit compares hardware with the shadows of all offloaded flows, and returns a condition for each difference.
//
// We cannot read the two at one instant, so we compare a flow only after its traffic has paused for idleLeast. The first
// such pause also repairs what a move under traffic has left behind: the total gets the packets that it lacks, and a
// shadow that did not follow the total does so from then on. A difference after that is an error of the device or of XDP.
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
	err := a.mover.plan.AddMissed(c.handle, func(total backend.Pair, sampled int64) (lacks backend.Pair) {
		now := a.mover.stack.software.Now()
		own, err := backend.ReadOne(a.mover.stack.software, c.shadow.ID)
		if err != nil || own != c.lastIdle.own || c.lastIdle.at == 0 {
			c.lastIdle = idleSample{own: own, at: shm.Now(), moment: now}
			return backend.Pair{}
		}
		if sampled < c.lastIdle.at+int64(idleLeast) {
			return backend.Pair{}
		}
		if c.lastIdle.totalAt == 0 || total != c.lastIdle.total {
			c.lastIdle.total = total
			c.lastIdle.totalAt = shm.Now()
			return backend.Pair{}
		}
		if shm.Now() < c.lastIdle.totalAt+int64(idleLeast) {
			return backend.Pair{}
		}
		c.differs = ""
		if !c.follows {
			follows = true
			c.shadowBase = backend.Sub(total, own)
			return backend.Pair{}
		}
		expected := backend.Add(c.shadowBase, own)
		switch {
		case total == expected:
		case c.needsAlign && total.Packets < expected.Packets:
			lacks = backend.Sub(expected, total)
			if c.basis != c.shadow.Basis {
				lacks.Bytes = 0 // the difference is mostly that of the two bases
			}
		case total.Packets != expected.Packets:
			c.differs = fmt.Sprintf("hardware has counted %d packets, XDP beside it %d", total.Packets, expected.Packets)
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
		text := fmt.Sprintf("%d packets that passed while it went there are added, as XDP counted them beside", added.Packets)
		if c.basis != c.shadow.Basis {
			text += ", without bytes, because XDP counts other bytes than the device"
		}
		a.mover.sendMoved(c, text, false)
	}
}

// waitsForPause reports whether the next pause can repair something: a total that lacks packets, or a shadow that does not
// follow its total.
func (a *auditor) waitsForPause(c *flowState) bool {
	return c.offloaded && (c.needsAlign && a.mover.shadowComplete(c) || a.mayFollowAgain(c))
}

// mayFollowAgain reports whether hardware and the shadow count the same packets now, although the shadow does not follow the
// total yet.
func (a *auditor) mayFollowAgain(c *flowState) bool {
	if c.follows || c.hardware.Takes || len(c.lost) > 0 || !c.hasShadow {
		return false
	}
	since, ok := a.mover.stack.software.CompleteSince(c.Placed)
	return ok && (c.lastIdle.at == 0 || !since.After(c.lastIdle.moment))
}

// follow notes that the shadow follows the total since lastIdle, in the mirror, too: the next process relies on it.
func (a *auditor) follow(c *flowState) {
	past := c.goesOn(besideHardware(c.shadow.Cookie), c.shadowBase)
	past.Seen = uint32(c.lastIdle.moment)
	if err := a.mover.writeContinuity(c, past); err != nil {
		a.mover.log.Warn("noting that XDP counts a flow beside hardware", "flow", c.Name, "err", err)
		return
	}
	c.follows = true
}

// alignIdle compares the flows that wait for a pause, and reports whether some still do. audit runs once per healthPeriod
// and would miss most pauses. If a control call holds Engine.ctl, alignIdle does nothing this time.
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

// alignAtEnd makes the totals exact that still lack packets: they go on from their shadows. Engine.end calls it before the
// last cycle publishes them.
func (a *auditor) alignAtEnd() {
	if a.mover.stack == nil {
		return
	}
	for _, c := range a.mover.stack.toAlign {
		if !c.needsAlign || !c.offloaded || c.gone != nil || !a.mover.shadowComplete(c) {
			continue
		}
		err := a.mover.plan.ChangeSource(c.handle, func(total backend.Pair) (backend.Counters, uint32, backend.Pair, error) {
			own, err := backend.ReadOne(a.mover.stack.software, c.shadow.ID)
			if err == nil && backend.Add(c.shadowBase, own).Packets < total.Packets { // a total never falls
				return a.mover.stack.hardware, c.hardware.ID, c.base, nil
			}
			base := c.shadowBase
			if c.basis != c.shadow.Basis {
				base.Bytes = total.Bytes - own.Bytes
			}
			return a.mover.stack.software, c.shadow.ID, base, err
		})
		if err != nil {
			a.mover.log.Warn("ending a total as XDP counted it beside", "flow", c.Name, "err", err)
		}
	}
}
