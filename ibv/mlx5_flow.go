package ibv

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/flowtally/flowtally/probe"
)

// MatcherAttr is struct mlx5dv_flow_matcher_attr.
type MatcherAttr struct {
	Mask     MatchParam // also determines the match criteria
	Priority uint16     // 0 to 15, lower first
	Egress   bool       // match sent packets (NIC_TX) instead of received ones
}

// Matcher is a mask and a priority, shared by its flows.
type Matcher struct {
	object
	dx   *DevX
	mask []byte // up to the last used section
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

// Close destroys the matcher. Its flows hold it: close them first.
func (m *Matcher) Close() error {
	return m.close(func(h handle) error {
		return m.dx.ctx.err("mlx5dv_destroy_flow_matcher", m.dx.m.destroyMatcher(h))
	})
}

// FlowActions are the actions on matched packets. On ingress, set either DefaultMiss or Drop. On egress, set
// Drop or nothing: without an action the packet is sent. Firmware and the kernel refuse all other
// combinations.
type FlowActions struct {
	Counters *FlowCounters // nil: do not count
	Offset   uint32        // index in Counters; other values than 0 need HasOffsets

	// DefaultMiss continues at the kernel's own rules: the packet is counted, and the kernel gets it. No
	// other flow of this domain sees the packet, so only the first match counts.
	DefaultMiss bool
	Drop        bool
}

// DevXFlow is a steering rule of a matcher.
type DevXFlow struct {
	object
	dx *DevX
}

// CreateFlow makes a rule by mlx5dv_create_flow. It matches packets equal to value in the bits of the matcher's
// mask. value must not have other bits.
//
// Several rules may have the same match and priority. Each of them counts every matching packet. But if one
// drops and another does not, the kernel refuses the second one (EEXIST). The flow holds its matcher and its
// counters.
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

// Close removes the rule. The counts stay in its counters.
func (f *DevXFlow) Close() error {
	return f.close(func(h handle) error {
		return f.dx.ctx.err("ibv_destroy_flow", f.dx.ctx.v.destroyFlow(h))
	})
}
