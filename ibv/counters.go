package ibv

// CounterDescription is enum ibv_counter_description: what a counter counts.
type CounterDescription uint32

// What flow counters count.
const (
	CounterPackets CounterDescription = iota
	CounterBytes
)

// CounterAttach is struct ibv_counter_attach_attr: the value at Index is to be, or
// to have added to it, what Counter says.
type CounterAttach struct {
	Counter CounterDescription
	Index   uint32
}

// ReadFlags is enum ibv_read_counters_flags.
type ReadFlags uint32

// ReadCountersPreferCached takes the driver's cached values where it has some. A
// hint: mlx5 accepts it and asks the firmware all the same.
const ReadCountersPreferCached ReadFlags = 1

// Counters is a counters object: a row of values that flows add to.
type Counters struct {
	object
	ctx *Context
}

// CreateCounters makes a counters object, cleared.
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

// Attach says what the flows that will name the object count, and where. All calls come
// before the first such flow: while one lives the answer is EBUSY. This is the
// static attach of the manual, the only one that any provider has.
func (n *Counters) Attach(a CounterAttach) error {
	if err := n.use(); err != nil {
		return err
	}
	defer n.done()
	return n.ctx.err("ibv_attach_counters_point_flow", n.ctx.v.attachCounters(n.h, a, 0, 0))
}

// Read fills dst with the values, by index; what lies behind the last index in use is 0. On
// hardware that is one firmware command per call. It allocates nothing. EINVAL: dst is
// shorter than the highest index in use, or no flow that names the object lives; the
// values are there again with the next flow.
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
