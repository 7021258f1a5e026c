package engine

import (
	"fmt"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/shm"
)

// quiet is what a flow's shadow stood at, and when: while it stands there, nothing has passed.
type quiet struct {
	own Pair
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
	for _, c := range e.layeredFlows() {
		if !c.hasOver || c.gone != nil || !e.whole(c) {
			c.still, c.differs = quiet{}, ""
			continue
		}
		var own, added Pair
		err := e.plan.align(c.handle, func(stands Pair, sampled int64) (lacks Pair) {
			var err error
			own, err = readOne(s.under, c.under.ID)
			if err != nil || own != c.still.own || sampled <= c.still.at || c.still.at == 0 {
				return Pair{}
			}
			c.differs = ""
			truth := add(c.line, own)
			switch {
			case stands == truth:
			case c.behind && stands.Packets < truth.Packets && c.basis == c.under.Basis:
				lacks = sub(truth, stands)
			case stands.Packets != truth.Packets:
				c.differs = fmt.Sprintf("hardware has counted %d packets, XDP beside it %d", stands.Packets, truth.Packets)
			}
			c.behind = false
			c.base, added = add(c.base, lacks), lacks
			return lacks
		})
		if added.Packets > 0 {
			e.tell(c, fmt.Sprintf("%d packets that passed while it went there are added, as XDP counted them beside", added.Packets), dataplane.Uncounted{})
		}
		if err == nil {
			c.still = quiet{own: own, at: shm.Now()}
		}
		if c.differs != "" {
			differ = append(differ, dataplane.Condition{
				Code: "rdma-audit-differs", Severity: dataplane.High, Object: c.Name, Text: c.differs,
				Fix: "set the flow's backend to xdp, and report the device and the flow", Since: now,
			})
		}
	}
	return differ
}
