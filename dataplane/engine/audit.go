package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

const (
	// quietLeast is how long nothing of a flow has passed when hardware has counted all that had passed:
	// longer than a packet takes from the one counter to the other.
	quietLeast = 50 * time.Millisecond
	// catchUpPeriod is how often a flow is looked at whose total lacks what passed on its way to hardware.
	catchUpPeriod = quietLeast / 2
)

// idleSample is what a flow's shadow stands at, and since when: nothing has passed since.
type idleSample struct {
	own backend.Pair
	at  int64
}

// audit compares hardware with the shadows that count beside it, at moments in which no
// packet of a flow passes: else the two are never read at one instant. What a total lacks since
// it went back to hardware under traffic is added then. A difference that came later is
// hardware's or XDP's own, and is said. It is called with ctl held.
func (e *Engine) audit(now time.Time) (differ []dataplane.Condition) {
	s := e.stack
	if s == nil || !s.audit {
		return nil
	}
	for _, c := range e.stackFlows() {
		if e.compare(c); c.differs != "" {
			differ = append(differ, dataplane.Condition{
				Code: dataplane.CodeRDMAAuditDiffers, Severity: dataplane.High, Object: c.Name, Text: c.differs,
				Fix: "set the flow's backend to xdp, and report the device and the flow", Since: now,
			})
		}
	}
	return differ
}

// compare looks at one flow that hardware counts.
func (e *Engine) compare(c *counted) {
	if !c.offloaded || c.gone != nil || !e.whole(c) {
		c.lastIdle, c.differs = idleSample{}, ""
		return
	}
	var added backend.Pair
	err := e.plan.AddMissed(c.handle, func(stands backend.Pair, sampled int64) (lacks backend.Pair) {
		own, err := readOne(e.stack.under, c.under.ID)
		if err != nil || own != c.lastIdle.own || c.lastIdle.at == 0 {
			c.lastIdle = idleSample{own: own, at: shm.Now()}
			return backend.Pair{}
		}
		if sampled < c.lastIdle.at+int64(quietLeast) {
			return backend.Pair{}
		}
		c.differs = ""
		truth := backend.Add(c.shadowBase, own)
		switch {
		case stands == truth:
		case c.needsAlign && stands.Packets < truth.Packets && c.basis == c.under.Basis:
			lacks = backend.Sub(truth, stands)
		case stands.Packets != truth.Packets:
			c.differs = fmt.Sprintf("hardware has counted %d packets, XDP beside it %d", stands.Packets, truth.Packets)
		}
		c.needsAlign = false
		c.base, added = backend.Add(c.base, lacks), lacks
		return lacks
	})
	if err != nil {
		c.lastIdle = idleSample{}
	}
	if added.Packets > 0 {
		e.tell(c, fmt.Sprintf("%d packets that passed while it went there are added, as XDP counted them beside", added.Packets), dataplane.Uncounted{})
	}
}

// catchUp compares the flows whose totals lack packets, and says whether some totals still do. audit alone
// would miss most pauses of a flow's traffic, because it runs only when the conditions are looked at.
func (e *Engine) catchUp() (more bool) {
	if !e.ctl.TryLock() {
		return true
	}
	defer e.ctl.Unlock()
	s := e.stack
	if s == nil {
		return false
	}
	s.toAlign = slices.DeleteFunc(s.toAlign, func(c *counted) bool {
		if c.needsAlign && c.offloaded {
			e.compare(c)
		}
		return !c.needsAlign || !c.offloaded || e.flows[c.Name] != c
	})
	return len(s.toAlign) > 0
}

// noteNeedsAlign notes that the total of a flow that hardware counts lacks something which its shadow knows.
func (e *Engine) noteNeedsAlign(c *counted) {
	c.needsAlign = true
	if e.stack.audit && !slices.Contains(e.stack.toAlign, c) {
		e.stack.toAlign = append(e.stack.toAlign, c)
	}
}

// alignAtEnd ends the total of each flow that still lacks something as its shadow has it. It is
// called at the end of the instance, before the last cycle, with ctl held.
func (e *Engine) alignAtEnd() {
	if e.stack == nil {
		return
	}
	for _, c := range e.stack.toAlign {
		if !c.needsAlign || !c.offloaded || c.gone != nil || c.basis != c.under.Basis || !e.whole(c) {
			continue
		}
		err := e.plan.ChangeSource(c.handle, func(stands backend.Pair) (backend.Counters, uint32, backend.Pair, error) {
			own, err := readOne(e.stack.under, c.under.ID)
			if err == nil && backend.Add(c.shadowBase, own).Packets < stands.Packets { // a total does not fall
				return e.stack.over, c.over.ID, c.base, nil
			}
			return e.stack.under, c.under.ID, c.shadowBase, err
		})
		if err != nil {
			e.log.Warn("ending a total as XDP counted it beside", "flow", c.Name, "err", err)
		}
	}
}
