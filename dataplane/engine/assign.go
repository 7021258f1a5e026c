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
)

// stack is the hardware backend in front of the software backend, and the flows that one of the two counts. It
// decides which flows hardware counts. Engine.ctl guards it.
type stack struct {
	hardware backend.HardwareBackend
	software backend.SoftwareBackend // nil: hardware counts a flow, or no backend does
	audit    bool                    // the shadows of offloaded flows count too

	toAlign []*flowState // with audit: offloaded flows that wait for a pause, see auditor.waitsForPause

	related *overlap.Index[*flowState] // the flows of the stack, except fresh flows before relate
	denied  denials                    // flows that fit the hardware, and that its device refused
}

// offload is the part of a flowState that concerns the stack. The flow's shadow is its rules and its counter in
// the software backend (hasShadow). A flow is in one of these states:
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
	noShadow                       bool                  // software has no room for it: refusals says why
	gone                           error                 // why hardware counts the flow no more, while no other backend does yet
	refusals                       []dataplane.Rejection // by backends that are not open

	above    []*flowState // flows that win over this one on packets that both match; winners sorts it
	below    []*flowState // flows that this one wins over there, in no order
	unsorted bool         // above is in no order
	isDenied bool         // the flow is in stack.denied

	lastIdle   idleSample      // see auditor
	differs    string          // the difference between hardware and the shadow
	resets     uint64          // HardwareBackend.Resets, as far as the total accounts for them
	needsAlign bool            // the total may lack packets that passed while the flow moved to hardware
	lost       []lostInterface // with offloaded: interfaces whose devices are lost

	// With follows, total = shadowBase + count of the shadow, as long as the shadow has been complete since past.Seen. See follow.go.
	follows    bool
	shadowBase backend.Pair
}

// byPrecedence compares the precedence of flows.
func byPrecedence(a, b *flowState) int {
	return backend.ByPrecedence(a.Placed, b.Placed)
}

// assignment says of flows whether hardware is to count them. A flow that it does not name stays where it is.
type assignment map[*flowState]bool

func (a assignment) has(c *flowState) bool {
	if inHardware, named := a[c]; named {
		return inHardware
	}
	return c.offloaded
}

// assign decides which of all, in order of precedence, hardware is to count, and why not the others. Hardware counts a
// flow if the flow fits and hardware counts all flows that win over it, because the software backend cannot take a
// packet back from hardware. A flow depends only on flows that win over it, so one pass in order of precedence finds
// the largest such set.
func (s *stack) assign(all []*flowState, refused map[*flowState]error) (inHardware assignment, why map[*flowState]error) {
	inHardware, why = make(assignment, len(all)), make(map[*flowState]error)
	for _, c := range all {
		s.judge(c, inHardware, why, refused)
	}
	return inHardware, why
}

// reassign is assign for seeds and for the flows that depend on them: the flows below a flow that enters or leaves
// hardware. The others stay. all lists the flows that were decided, in order of precedence.
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

// judge decides on one flow. The flows that win over it must have been decided before.
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

// possible returns an error if the flows cannot be counted as assigned: if no backend may count one of them, or if a flow
// that XDP publishes would take packets that hardware counts for a flow without a shadow.
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
		case c.gone == nil: // one that is waits for its device
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

// goWithoutShadow notes that software has no room for the shadow of a flow, or returns why the flow cannot be counted then.
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

// unaudited returns the error of flows without the shadows that the configuration asks for.
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

// explain updates the rejections of flows that their shadows count: they may have been placed before the hardware existed,
// or for another reason.
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
	// Thousands of flows have one reason: they share its text.
	reason := unique.Make(why.Error()).Value()
	return append(slices.Clone(c.refusals), dataplane.Rejection{Backend: s.hardware.Name(), Reason: reason})
}

// noteGone notes the flows that hardware has lost, by name.
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

// noteLostInterfaces notes the interfaces whose devices a flow has lost, if hardware can count it on the others. With
// audit a flow moves whole: its shadow has counted on all interfaces, so its total stays exact.
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
