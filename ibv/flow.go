package ibv

import "fmt"

// FlowAttrType is enum ibv_flow_attr_type.
type FlowAttrType uint32

// The types of a flow. Only FlowAttrNormal counts: CreateFlow refuses a [CountSpec] in the others.
const (
	FlowAttrNormal     FlowAttrType = iota // steering by the specs
	FlowAttrAllDefault                     // packets steered by no other rule
	FlowAttrMCDefault                      // multicast packets steered by no other rule
	FlowAttrSniffer                        // a copy of all traffic of the port
)

func (t FlowAttrType) String() string {
	return name("flow type", t, "NORMAL", "ALL_DEFAULT", "MC_DEFAULT", "SNIFFER")
}

// FlowFlags is enum ibv_flow_flags.
type FlowFlags uint32

// The flags of a flow.
const (
	FlowDontTrap FlowFlags = 1 << 1 // let packets continue to flows of lower priority, and to the kernel
	FlowEgress   FlowFlags = 1 << 2 // match packets sent by the device
)

// FlowAttr is struct ibv_flow_attr, including the specs.
type FlowAttr struct {
	Type     FlowAttrType
	Flags    FlowFlags
	Priority uint16 // lower first; mlx5 has 0 to 15
	Port     uint8  // the first is 1
	Specs    []Spec // outermost header first
}

// Flow is a steering rule, as struct ibv_flow.
type Flow struct {
	object
	ctx *Context
}

// CreateFlow steers packets matching the specs to the queue pair, or applies the specs' actions to them.
// The queue pair must be of type RAW_PACKET or UD, and the process needs CAP_NET_RAW. The flow holds the
// queue pair and its Counters. If a flow is refused for a reason known to [FlowAttr.Check], the error
// includes the reason.
func (q *QP) CreateFlow(a FlowAttr) (*Flow, error) {
	parents := []*object{&q.object}
	for _, s := range a.Specs {
		if s, ok := s.(CountSpec); ok && s.Counters != nil {
			parents = append(parents, &s.Counters.object)
		}
	}

	f := &Flow{ctx: q.ctx}
	err := f.init("flow", q.device, func() (handle, error) {
		blob, err := appendFlow(nil, a)
		if err != nil {
			return 0, err
		}

		h, errno := q.ctx.v.createFlow(q.h, blob)
		if errno == 0 {
			return h, nil
		}
		err = q.ctx.err("ibv_create_flow", errno)
		if why := a.Check(); why != nil {
			err = fmt.Errorf("%w: %w", err, why)
		}
		return 0, err
	}, parents...)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Close destroys the flow. The counts stay in its Counters, but [Counters.Read] needs another flow to read
// them.
func (f *Flow) Close() error {
	return f.close(func(h handle) error {
		return f.ctx.err("ibv_destroy_flow", f.ctx.v.destroyFlow(h))
	})
}
