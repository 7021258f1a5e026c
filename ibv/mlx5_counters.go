package ibv

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync"
	"syscall"
)

// MaxFlowCounters is the largest number of counters of one [FlowCounters]. uverbs limits the length
// of a result to 16 bits, so one command reads up to 4,094 counters, and bulks are powers of two.
const MaxFlowCounters = 2048

// FlowCounters is a bulk of flow counters that firmware allocated together. Each counts packets and
// octets of the flows that name it. They begin at 0 and keep their values when flows end.
type FlowCounters struct {
	object
	dx      *DevX
	firstID uint32
	size    int

	// The command of the last query is kept, because the next one is usually the same.
	queryMu sync.Mutex
	in, out []byte
	asked   int // counters that in asks for; 0 before the first query
}

// FlowCount is struct mlx5_ifc_traffic_counter_bits: 64 bits each, which do not wrap in practice.
// No public source documents whether Octets includes FCS and tags.
type FlowCount struct {
	Packets uint64
	Octets  uint64
}

func (f *FlowCount) prm(c *prmCodec) {
	field(c, "packets", 0x00, 0x40, &f.Packets)
	field(c, "octets", 0x40, 0x40, &f.Octets)
}

// trafficCounter decodes a FlowCount word by word, because thousands come at a time and the codec
// goes bit by bit.
func trafficCounter(b []byte) FlowCount {
	return FlowCount{Packets: binary.BigEndian.Uint64(b), Octets: binary.BigEndian.Uint64(b[8:])}
}

// AllocFlowCounters allocates at least n counters as one object. The device chooses the size:
// single counters, multiples of 128, or powers of two. Len returns the size.
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
				d.m.destroyObject(h) // libmlx5 made its own, although the status says that firmware made none
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

// alloc returns the command for the smallest bulk of at least n counters that the device has, and
// the size of the bulk.
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

// A bulk is queried in multiples of 2^queryUnitLog counters, as the kernel does
// (drivers/net/ethernet/mellanox/mlx5/core/fs_counters.c).
const queryUnitLog = 2

// Len returns the number of counters.
func (f *FlowCounters) Len() int { return f.size }

// Query reads the first len(dst) counters into dst with one command. The two values of a counter
// are of one instant; different counters are of slightly different times. After an error dst is
// unchanged. Query allocates nothing while len(dst) stays the same.
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
	clear(out[:prmOutSize]) // of the status of the query before
	errno := f.dx.m.queryObject(f.h, f.in, out)
	if err := f.dx.commandErr("mlx5dv_devx_obj_query (QUERY_FLOW_COUNTER)", errno, out); err != nil {
		return err
	}

	for i := range dst {
		dst[i] = trafficCounter(out[prmOutSize+i*trafficCounterSize:])
	}
	return nil
}

// encodeQuery makes in the command for the first n counters, unless it is that already. The caller
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

// Close frees the counters, which no flow may name any more.
func (f *FlowCounters) Close() error {
	return f.close(func(h handle) error {
		return f.dx.ctx.err("mlx5dv_devx_obj_destroy", f.dx.m.destroyObject(h))
	})
}
