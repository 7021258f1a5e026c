package ibv

import "sync/atomic"

// CounterDescription is enum ibv_counter_description: the unit of a counter.
type CounterDescription uint32

// The units of flow counters.
const (
	CounterPackets CounterDescription = iota
	CounterBytes
)

// CounterAttach is struct ibv_counter_attach_attr: flows count the unit Counter at Index. If two units are
// attached at one index, their counts are added up.
type CounterAttach struct {
	Counter CounterDescription
	Index   uint32
}

// ReadFlags is enum ibv_read_counters_flags.
type ReadFlags uint32

// ReadCountersPreferCached is a hint to read values cached by the driver. mlx5 ignores it and queries the
// firmware.
const ReadCountersPreferCached ReadFlags = 1

// Counters is struct ibv_counters: a row of values, to which flows add. A flow names its Counters in a
// [CountSpec].
type Counters struct {
	object
	ctx      *Context
	attached atomic.Bool // a point is attached; it stays until Close
}

// CreateCounters makes a counters object whose values are 0.
func (c *Context) CreateCounters() (*Counters, error) {
	n := &Counters{ctx: c}
	err := n.init("counters object", c.device, func() (handle, error) {
		h, errno := c.v.createCounters(c.h, 0)
		return h, c.err("ibv_create_counters", errno)
	}, &c.object)
	if err != nil {
		return nil, err
	}
	return n, nil
}

// Attach sets what the flows of this object count, and at which index. Call it before creating the first
// flow: CreateFlow refuses Counters without an attached point, and as long as a flow names the object, Attach
// returns EBUSY. This is the manual's static attach. No provider has any other.
func (n *Counters) Attach(a CounterAttach) error {
	if err := n.use(); err != nil {
		return err
	}
	defer n.done()

	if errno := n.ctx.v.attachCounters(n.h, a, 0, 0); errno != 0 {
		return n.ctx.err("ibv_attach_counters_point_flow", errno)
	}
	n.attached.Store(true)
	return nil
}

// Read fills dst with the values by index. Values beyond the highest attached index are 0. On hardware
// each call is a firmware command. Read allocates nothing.
//
// It returns EINVAL if dst is too short for the highest attached index. It also returns EINVAL while no
// flow names the object; the values become readable again with the next flow.
func (n *Counters) Read(dst []uint64, flags ReadFlags) error {
	if err := n.use(); err != nil {
		return err
	}
	defer n.done()

	return n.ctx.err("ibv_read_counters", n.ctx.v.readCounters(n.h, dst, flags))
}

// Close destroys the object. Flows hold it: close them first.
func (n *Counters) Close() error {
	return n.close(func(h handle) error {
		return n.ctx.err("ibv_destroy_counters", n.ctx.v.destroyCounters(h))
	})
}
