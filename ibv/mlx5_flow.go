package ibv

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/flowtally/flowtally/probe"
)

// MatcherAttr is struct mlx5dv_flow_matcher_attr.
type MatcherAttr struct {
	Mask     MatchParam // the match criteria follow from it
	Priority uint16     // 0 to 15, lower first
	Egress   bool       // match packets that the device sends (NIC_TX), otherwise packets that it receives
}

// Matcher is a mask and a priority that flows share.
type Matcher struct {
	object
	dx   *DevX
	mask []byte // as far as its last section in use
}

// CreateMatcher makes a matcher by mlx5dv_create_flow_matcher. An empty mask matches every packet.
func (d *DevX) CreateMatcher(a MatcherAttr) (*Matcher, error) {
	mask, criteria, err := a.Mask.encodeMask()
	if err != nil {
		return nil, fmt.Errorf("%s: making a matcher: %w", d.device, err)
	}
	var flags FlowFlags
	if a.Egress {
		flags = FlowEgress
	}

	m := &Matcher{dx: d, mask: mask}
	err = m.init("matcher", d.device, func() (handle, error) {
		h, errno := d.m.createMatcher(d.h, mask, criteria, a.Priority, flags)
		return h, d.ctx.err("mlx5dv_create_flow_matcher", errno)
	}, &d.object)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Close destroys the matcher. Its flows hold it.
func (m *Matcher) Close() error {
	return m.close(func(h handle) error {
		return m.dx.ctx.err("mlx5dv_destroy_flow_matcher", m.dx.m.destroyMatcher(h))
	})
}

// FlowActions are the actions on matched packets. On ingress the flow needs DefaultMiss or Drop. On
// egress it has Drop or no action, which sends the packet on. Firmware and the kernel refuse all
// other combinations.
type FlowActions struct {
	Counters *FlowCounters // nil: no counter
	Offset   uint32        // the index in Counters; not 0 needs HasOffsets

	// DefaultMiss goes on at the kernel's own rules: the packet is counted and the kernel gets it.
	// No further flow of this domain sees the packet, so only the first match counts.
	DefaultMiss bool
	Drop        bool
}

// DevXFlow is a steering rule of a matcher.
type DevXFlow struct {
	object
	dx *DevX
}

// CreateFlow makes a rule by mlx5dv_create_flow, for the packets that have value under the matcher's
// mask. A bit of value outside the mask is an error. Rules of one priority with one match count
// together, and are refused (EEXIST) if one drops and the other does not. The flow holds its matcher
// and its counters.
func (m *Matcher) CreateFlow(value MatchParam, a FlowActions) (*DevXFlow, error) {
	match, err := value.encodeValue(m.mask)
	if err != nil {
		return nil, fmt.Errorf("%s: making a flow: %w", m.device, err)
	}
	parents := []*object{&m.object}
	if a.Counters != nil {
		if a.Counters.dx != m.dx {
			return nil, fmt.Errorf("%s: making a flow: its counters are of another DevX context: %w", m.device, syscall.EINVAL)
		}
		parents = append(parents, &a.Counters.object)
	}

	f := &DevXFlow{dx: m.dx}
	err = f.init("flow", m.device, func() (handle, error) {
		var counters handle
		if a.Counters != nil {
			counters = a.Counters.h
		}
		h, errno := m.dx.m.createFlow(m.h, match, counters, a.Offset, a.DefaultMiss, a.Drop)
		err := m.dx.ctx.err("mlx5dv_create_flow", errno)
		if errors.Is(err, probe.ErrNotSupported) && a.Offset > 0 && !m.dx.HasOffsets() {
			err = fmt.Errorf("%w: libmlx5 has no counter offsets (rdma-core 60.2, 61.1, 62.1, 63 and later have them): use single counters", err)
		}
		return h, err
	}, parents...)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Close removes the rule. Its counts stay in its counters.
func (f *DevXFlow) Close() error {
	return f.close(func(h handle) error {
		return f.dx.ctx.err("ibv_destroy_flow", f.dx.ctx.v.destroyFlow(h))
	})
}
