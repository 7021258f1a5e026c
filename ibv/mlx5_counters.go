package ibv

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync"
	"syscall"
)

// MaxFlowCounters is the largest number of counters in one [FlowCounters]. uverbs limits the length of a
// result to 16 bits, so one command reads up to 4,094 counters. The next smaller power of two is 2,048.
const MaxFlowCounters = 2048

// FlowCounters is a bulk of flow counters, allocated together by firmware. Each counts the packets and
// octets of its flows. It begins at 0, and keeps its values when a flow ends.
type FlowCounters struct {
	object
	dx      *DevX
	firstID uint32
	size    int

	// We keep the command of the last query, because the next one is usually the same.
	queryMu sync.Mutex
	in, out []byte
	asked   int // number of counters in the command; 0 before the first query
}

// FlowCount is struct mlx5_ifc_traffic_counter_bits. Values of 64 bits do not wrap in practice. No public
// source documents whether Octets includes FCS and tags.
type FlowCount struct {
	Packets uint64
	Octets  uint64
}

func (f *FlowCount) prm(c *prmCodec) {
	field(c, "packets", 0x00, 0x40, &f.Packets)
	field(c, "octets", 0x40, 0x40, &f.Octets)
}

// trafficCounter decodes a FlowCount. We read thousands at a time, and the codec would go bit by bit.
func trafficCounter(b []byte) FlowCount {
	return FlowCount{Packets: binary.BigEndian.Uint64(b), Octets: binary.BigEndian.Uint64(b[8:])}
}

// AllocFlowCounters allocates at least n counters as one object. Devices offer different sizes: single
// counters, multiples of 128, or powers of two. Len returns the actual size.
func (d *DevX) AllocFlowCounters(n int) (*FlowCounters, error) {
	cmd, size, err := d.caps.alloc(n)
	if err != nil {
		return nil, fmt.Errorf("%s: allocating %d flow counters: %w", d.device, n, err)
	}

	f := &FlowCounters{
		dx:   d,
		size: size,
		out:  make([]byte, prmOutSize+size*trafficCounterSize),
	}
	err = f.init("flow counters", d.device, func() (handle, error) {
		in, err := encodePRM(nil, prmInSize, &cmd)
		if err != nil {
			return 0, err
		}
		out := make([]byte, prmOutSize)

		h, errno := d.m.createObject(d.h, in, out)
		if err := d.commandErr("mlx5dv_devx_obj_create (ALLOC_FLOW_COUNTER)", errno, out); err != nil {
			if h != 0 {
				d.m.destroyObject(h) // libmlx5 made its own object, although firmware refused
			}
			return 0, err
		}

		var got allocFlowCounterOut
		decodePRM(out, &got)
		f.firstID = got.FlowCounterID
		return h, nil
	}, &d.object)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// alloc returns the command for the smallest possible bulk of at least n counters, and its size.
func (c counterCaps) alloc(n int) (cmd allocFlowCounterIn, size int, err error) {
	switch {
	case n < 1 || n > MaxFlowCounters:
		return cmd, 0, fmt.Errorf("%w: 1 to %d, use several objects", errSize, MaxFlowCounters)
	case n == 1:
		return cmd, 1, nil
	}

	if c.maxLog > 0 {
		log := max(bits.Len(uint(n-1)), int(c.minLog), queryUnitLog)
		if log <= int(c.maxLog) && 1<<log <= MaxFlowCounters {
			return allocFlowCounterIn{BulkLogSize: uint8(log)}, 1 << log, nil
		}
	}

	for i := range 8 {
		size := 128 << i
		if c.bulkMask>>i&1 != 0 && size >= n && size <= MaxFlowCounters {
			return allocFlowCounterIn{Bulk: 1 << i}, size, nil
		}
	}
	return cmd, 0, fmt.Errorf("%w: the device has no bulk for that many (%v): use single counters", syscall.EOPNOTSUPP, c)
}

// Query a bulk in multiples of 2^queryUnitLog counters, as the kernel does
// (drivers/net/ethernet/mellanox/mlx5/core/fs_counters.c).
const queryUnitLog = 2

// Len returns the number of counters.
func (f *FlowCounters) Len() int { return f.size }

// Query reads the first len(dst) counters into dst with one command. The two values of a counter belong to
// one instant, but different counters are read at slightly different times. After an error dst is
// unchanged. Query allocates nothing as long as len(dst) stays the same.
func (f *FlowCounters) Query(dst []FlowCount) error {
	if len(dst) > f.size {
		return fmt.Errorf("%s: querying %d flow counters of %d: %w", f.device, len(dst), f.size, errSize)
	}
	if len(dst) == 0 {
		return nil
	}
	if err := f.use(); err != nil {
		return err
	}
	defer f.done()

	f.queryMu.Lock()
	defer f.queryMu.Unlock()
	if err := f.encodeQuery(len(dst)); err != nil {
		return err
	}

	out := f.out[:prmOutSize+f.asked*trafficCounterSize]
	clear(out[:prmOutSize]) // remove the status of the previous query
	errno := f.dx.m.queryObject(f.h, f.in, out)
	if err := f.dx.commandErr("mlx5dv_devx_obj_query (QUERY_FLOW_COUNTER)", errno, out); err != nil {
		return err
	}

	for i := range dst {
		dst[i] = trafficCounter(out[prmOutSize+i*trafficCounterSize:])
	}
	return nil
}

// encodeQuery stores the command for the first n counters in f.in, unless it is there already. The caller
// holds queryMu.
func (f *FlowCounters) encodeQuery(n int) error {
	asked := 1
	number := uint32(0)
	if f.size > 1 {
		asked = roundUp(n, 1<<queryUnitLog)
		number = uint32(asked)
	}
	if asked == f.asked {
		return nil
	}

	in, err := encodePRM(nil, queryFlowCounterInSize, &queryFlowCounterIn{
		NumOfCounters: number,
		FlowCounterID: f.firstID,
	})
	if err != nil {
		return err
	}
	f.in = in
	f.asked = asked
	return nil
}

// Close frees the counters. Flows hold them: close them first.
func (f *FlowCounters) Close() error {
	return f.close(func(h handle) error {
		return f.dx.ctx.err("mlx5dv_devx_obj_destroy", f.dx.m.destroyObject(h))
	})
}
