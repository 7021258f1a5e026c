package xdp

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// LiveMap describes the map of counters to another process, which can map it and read the slots by itself. The map is frozen, so
// nobody can write through its descriptor.
//
// The slots of CPU n begin at n*Stride. The slot of counter id is the 16 bytes at 16*id from there (bpf/counters.h). Readers must
// compare the word at CPUs*Stride with Epoch. It changes when another Datapath opens the map. From then on, slots may belong
// to other owners.
type LiveMap struct {
	FD       int    // owned by the Datapath, which closes it
	ID       uint32 // id of the map in the kernel
	Epoch    uint64
	CPUs     int
	Counters int // slots of a CPU
	Stride   int // bytes from the slots of one CPU to those of the next
}

// LiveMap describes the map of counters.
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
