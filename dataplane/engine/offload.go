package engine

import (
	"container/heap"
	"errors"
	"fmt"
	"slices"
	"unique"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/overlap"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// stack is hardware in front of XDP, with the flows that either may count. It decides which flows hardware counts.
// Engine.ctl guards it.
type stack struct {
	hardware backend.HardwareBackend
	software backend.SoftwareBackend // nil if the instance has hardware alone
	audit    bool                    // XDP also counts the flows that hardware counts (rdma.audit)

	toAlign []*flowState // offloaded flows that wait for a pause in their traffic; see auditor.waitsForPause

	related *overlap.Index[*flowState] // the flows of the stack; relate adds the fresh ones
	denied  denials                    // flows that the device refused, although it could match them
}

// newStack returns the stack of the hardware and the software among all backends. It returns nil if there is no hardware, or if
// the host has no device yet.
func newStack(all []backend.Backend, absent map[string]error, audit bool) *stack {
	s := &stack{audit: audit, related: overlap.NewIndex(func(c *flowState) *flow.Flow { return &c.Flow })}
	for _, b := range all {
		if absent[b.Name()] != nil {
			continue
		}
		switch b := b.(type) {
		case backend.HardwareBackend:
			s.hardware = b
		case backend.SoftwareBackend:
			s.software = b
		}
	}
	if s.hardware == nil {
		return nil
	}
	s.audit = audit && s.software != nil
	return s
}

// offload is what the stack knows of a flow. The shadow of a flow is its rules and its slot in XDP (hasShadow). A flow is
// in one of these states:
//
//	fresh       not published
//	offloaded   offloaded is set; flowState.backend is the hardware. follows is set if the shadow counts too
//	            (audit), or if its hooks are held for other flows
//	divided     as offloaded, with lost: on those interfaces the shadow counts in place of the devices
//	gone        as offloaded, with gone: the hardware has reported a loss; the next arrange ends this state
//	shadow      not offloaded, and gone is nil: flowState.backend is the software
//	suspended   not offloaded, with gone: no backend counts the flow; the total stays until the device
//	            returns or the shadow can count
//
// toSoftware leads from offloaded, gone and suspended to shadow. toHardware leads from shadow and suspended to
// offloaded. suspend leads from gone to suspended. moveToHardware and publishFresh end fresh.
type offload struct {
	allowsHardware, allowsSoftware bool              // by the flow and the configuration
	hardware, shadow               backend.Installed // valid with offloaded, hasShadow
	offloaded, hasShadow           bool
	noShadow                       bool                  // XDP has no room for a shadow; refusals says why
	gone                           error                 // why hardware stopped counting the flow; nil as soon as something counts it
	refusals                       []dataplane.Rejection // by backends that are not open

	above    []*flowState // overlapping flows that win over this one; winners sorts them
	below    []*flowState // overlapping flows that lose against this one, in no order
	unsorted bool         // above has to be sorted before its next use
	isDenied bool         // the flow is in stack.denied

	lastIdle   idleSample      // see auditor
	differs    string          // what the audit found to differ between hardware and the shadow
	resets     uint64          // the resets of the device that the discontinuities of the total include
	needsAlign bool            // packets passed while the flow moved to hardware, and the total may lack them
	lost       []lostInterface // of an offloaded flow: the interfaces whose devices are lost

	// If follows is set, the total is shadowBase plus the count of the shadow, provided that the shadow has been complete
	// since flowState.past.Seen. See follow.go.
	follows    bool
	shadowBase backend.Pair
}

// byPrecedence compares the precedence of flows.
func byPrecedence(a, b *flowState) int {
	return backend.ByPrecedence(a.Placed, b.Placed)
}

// assignment says whether hardware shall count a flow. A flow without an entry stays where it is.
type assignment map[*flowState]bool

func (a assignment) has(c *flowState) bool {
	if inHardware, named := a[c]; named {
		return inHardware
	}
	return c.offloaded
}

// assign decides which flows hardware shall count, and says why not the others. all is in order of precedence.
//
// Hardware may count a flow if the device can match it exactly, and if hardware counts every flow that wins over it: XDP
// comes later, and cannot take back a packet that hardware has counted. As a flow depends only on flows that win over it,
// one pass in order of precedence finds the largest possible set.
func (s *stack) assign(all []*flowState, refused map[*flowState]error) (inHardware assignment, why map[*flowState]error) {
	inHardware, why = make(assignment, len(all)), make(map[*flowState]error)
	for _, c := range all {
		s.judge(c, inHardware, why, refused)
	}
	return inHardware, why
}

// reassign is assign for the seeds alone, and for the flows below each flow that enters or leaves hardware. It returns the
// flows for which it has decided, in order of precedence. All others stay.
func (s *stack) reassign(seeds []*flowState, refused map[*flowState]error) (all []*flowState, inHardware assignment, why map[*flowState]error) {
	inHardware, why = make(assignment, len(seeds)), make(map[*flowState]error)
	queue := &precedenceHeap{}
	known := make(map[*flowState]bool, len(seeds))
	ask := func(list []*flowState) {
		for _, c := range list {
			if !known[c] {
				known[c] = true
				heap.Push(queue, c)
			}
		}
	}
	ask(seeds)
	for queue.Len() > 0 {
		c := heap.Pop(queue).(*flowState)
		all = append(all, c)
		s.judge(c, inHardware, why, refused)
		if inHardware[c] != c.offloaded {
			ask(c.below) // c wins over each of them, so they are not decided yet
		}
	}
	return all, inHardware, why
}

// judge decides for one flow. Callers must have decided for the flows that win over it before.
func (s *stack) judge(c *flowState, inHardware assignment, why, refused map[*flowState]error) {
	inHardware[c] = false
	if !c.allowsHardware {
		return
	}
	err := refused[c]
	above := c.winners()
	if i := slices.IndexFunc(above, func(o *flowState) bool { return o.takesFrom(c, inHardware.has(o)) }); err == nil && i >= 0 {
		err = fmt.Errorf("flow %q wins over it on packets that match both, and is not counted by %s", above[i].Name, s.hardware.Name())
	}
	if err == nil {
		var without []string // interfaces whose devices are lost
		for _, a := range c.lost {
			if c.offloaded {
				without = append(without, a.name)
			}
		}
		err = s.hardware.Fits(c.Flow, placedOf(above), without)
	}
	if err != nil {
		why[c] = err
		return
	}
	inHardware[c] = true
}

// possible refuses an assignment that leaves a flow uncounted because no backend may count it. It also refuses one that counts
// packets twice: hardware counts a flow without a shadow, and XDP counts a flow that loses against it.
func (s *stack) possible(all []*flowState, inHardware assignment, why map[*flowState]error) error {
	var errs []error
	for _, c := range all {
		switch {
		case inHardware.has(c):
			if c.hasShadow {
				continue
			}
			for _, o := range c.below {
				if _, named := inHardware[o]; !named {
					errs = append(errs, s.missingShadow(o, inHardware))
				}
			}
		case c.allowsSoftware && c.hasShadow:
			errs = append(errs, s.missingShadow(c, inHardware))
		case c.gone == nil: // a flow with gone waits for its device, which is no error
			errs = append(errs, s.unplaced(c, why[c]))
		}
	}
	return errors.Join(errs...)
}

// unplaced returns the error of a flow that no backend counts. why is the reason of hardware, or nil.
func (s *stack) unplaced(c *flowState, why error) error {
	err := fmt.Errorf("flow %q: %w", c.Name, dataplane.ErrUnplaced)
	for _, r := range s.reasons(c, why) {
		err = fmt.Errorf("%w: %s: %s", err, r.Backend, r.Reason)
	}
	return err
}

// goWithoutShadow notes that XDP has no room for the shadow of a flow. It returns an error if the flow needs its shadow.
func (s *stack) goWithoutShadow(c *flowState, why error) error {
	if s.audit {
		return s.unaudited(why)
	}
	c.noShadow = true
	c.refusals = append(c.refusals, dataplane.Rejection{Backend: s.software.Name(), Reason: why.Error()})
	if !c.allowsHardware {
		return s.unplaced(c, nil)
	}
	return nil
}

// unaudited returns the error of flows that rdma.audit asks XDP to count, too, and for which XDP has no room.
func (s *stack) unaudited(why error) error {
	return fmt.Errorf("counting beside %s, as rdma.audit asks for: %w", s.hardware.Name(), why)
}

// missingShadow returns an error if XDP counts c, and a flow that wins over c is counted by hardware and has no shadow.
func (s *stack) missingShadow(c *flowState, inHardware assignment) error {
	if inHardware.has(c) || !c.allowsSoftware || !c.hasShadow {
		return nil
	}
	var errs []error
	for _, o := range c.winners() {
		if !o.hasShadow && (inHardware.has(o) || o.published()) {
			errs = append(errs, fmt.Errorf("flow %q: %s has no room for the shadow of flow %q, which wins over it and is counted by %s: %w",
				c.Name, s.software.Name(), o.Name, s.hardware.Name(), dataplane.ErrUnplaced))
		}
	}
	return errors.Join(errs...)
}

// explain updates why hardware does not count the flows that XDP counts. The reason may have changed since they were
// placed: for example, there may have been no device then.
func (s *stack) explain(all []*flowState, why map[*flowState]error) {
	for _, c := range all {
		if !c.published() || c.offloaded || c.gone != nil || why[c] == nil {
			continue
		}
		if now := s.reasons(c, why[c]); !slices.Equal(now, c.rejected) {
			c.edit().rejected = now
		}
	}
}

// reasons returns why the backends that do not count a flow do not count it.
func (s *stack) reasons(c *flowState, why error) []dataplane.Rejection {
	if why == nil {
		return c.refusals
	}
	// Thousands of flows may have the same reason, so they share one copy of its text.
	reason := unique.Make(why.Error()).Value()
	return append(slices.Clone(c.refusals), dataplane.Rejection{Backend: s.hardware.Name(), Reason: reason})
}

// noteGone marks the flows that hardware has lost. gone has the reasons by name.
func (s *stack) noteGone(all []*flowState, gone map[string]error) {
	if len(gone) == 0 {
		return
	}
	for _, c := range all {
		if err := gone[c.Name]; err != nil && c.offloaded {
			c.gone = err
			s.noteLostInterfaces(c)
		}
	}
}

// noteLostInterfaces notes on which interfaces a flow has lost its device, if hardware can go on with it on the others.
// With audit this never happens: the shadow has counted on all interfaces, so the whole flow moves to XDP, and its total
// stays exact.
func (s *stack) noteLostInterfaces(c *flowState) {
	if s.software == nil || s.audit || !c.allowsSoftware || !c.hasShadow {
		return
	}
	for _, ifname := range s.hardware.Lost(c.Placed) {
		if !c.hasLost(ifname) {
			c.lost = append(c.lost, lostInterface{name: ifname})
		}
	}
}
