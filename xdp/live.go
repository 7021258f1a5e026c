package xdp

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// LiveMap describes the counters' map to processes that map it and read slots by themselves. The map is frozen, so its
// descriptor lets no process write.
//
// The slots of CPU n begin at n*Stride. The slot of counter id is 16 bytes at 16*id from there (bpf/counters.h). The word at
// CPUs*Stride is Epoch as long as no other Datapath has opened the map. When it changes, slots may belong to other owners.
type LiveMap struct {
	FD       int    // of the Datapath, which closes it
	ID       uint32 // of the map, in the kernel
	Epoch    uint64
	CPUs     int
	Counters int // slots of a CPU
	Stride   int // bytes from one CPU's slots to the next one's
}

// LiveMap returns the description of the counters' map.
func (dp *Datapath) LiveMap() (LiveMap, error) {
	if err := dp.enter(); err != nil {
		return LiveMap{}, err
	}
	defer dp.mu.Unlock()

	if dp.epochErr != nil {
		return LiveMap{}, dp.epochErr
	}

	m := dp.maps.counters
	host := m.hostMap()
	if host == nil {
		return LiveMap{}, fmt.Errorf("asking map %s: %w", m.name, errors.ErrUnsupported)
	}
	info, err := host.Info()
	if err != nil {
		return LiveMap{}, fmt.Errorf("asking map %s: %w", m.name, err)
	}
	id, ok := info.ID()
	if !ok {
		return LiveMap{}, fmt.Errorf("asking map %s for its number: %w", m.name, ErrNotFound)
	}
	return LiveMap{
		FD:       host.FD(),
		ID:       uint32(id),
		Epoch:    atomic.LoadUint64(&m.words[dp.g.counterBytes()/8]),
		CPUs:     dp.g.cpus,
		Counters: dp.g.counters,
		Stride:   dp.g.block,
	}, nil
}
