package ibv

// CounterDescription is enum ibv_counter_description: the unit that a counter counts.
type CounterDescription uint32

// The units of flow counters.
const (
	CounterPackets CounterDescription = iota
	CounterBytes
)

// CounterAttach is struct ibv_counter_attach_attr: flows count Counter at Index. Two quantities at
// one index are added up.
type CounterAttach struct {
	Counter CounterDescription
	Index   uint32
}

// ReadFlags is enum ibv_read_counters_flags.
type ReadFlags uint32

// ReadCountersPreferCached reads the driver's cached values if it has any. A hint: mlx5 accepts it
// and still queries the firmware.
const ReadCountersPreferCached ReadFlags = 1

// Counters is a counters object, struct ibv_counters: a row of values that flows add to. A flow
// names it in a [CountSpec].
type Counters struct {
	object
	ctx *Context
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

// Attach sets which quantities the flows of this object count, and at which index. All calls come
// before the first flow that names the object: while such a flow lives, Attach returns EBUSY. This
// is the static attach of the manual, the only kind that any provider has.
func (n *Counters) Attach(a CounterAttach) error {
	if err := n.use(); err != nil {
		return err
	}
	defer n.done()

	return n.ctx.err("ibv_attach_counters_point_flow", n.ctx.v.attachCounters(n.h, a, 0, 0))
}

// Read fills dst with the values, by index. Values behind the last index in use are 0. On hardware
// each call is one firmware command. Read allocates nothing. It returns EINVAL if dst is shorter
// than the highest index in use, or if no flow that names the object lives. The values are readable
// again with the next flow.
func (n *Counters) Read(dst []uint64, flags ReadFlags) error {
	if err := n.use(); err != nil {
		return err
	}
	defer n.done()

	return n.ctx.err("ibv_read_counters", n.ctx.v.readCounters(n.h, dst, flags))
}

// Close destroys the object. Flows that name it hold it.
func (n *Counters) Close() error {
	return n.close(func(h handle) error {
		return n.ctx.err("ibv_destroy_counters", n.ctx.v.destroyCounters(h))
	})
}
