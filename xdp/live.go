package xdp

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// LiveMap describes the counters' map for processes that map it and read slots by themselves. The counters of CPU n
// begin at n*Stride; the slot of counter id is 16 bytes at 16*id from there, as bpf/counters.h defines them. The map
// is frozen: its descriptor lets no process write. At CPUs*Stride is a word that holds Epoch as long as this RuleSet is
// the last that has opened the map: slots that were known under another epoch may belong to other owners.
type LiveMap struct {
	FD       int    // of the RuleSet, which closes it
	ID       uint32 // the kernel's number of the map
	Epoch    uint64
	CPUs     int
	Counters int // slots of a CPU
	Stride   int // bytes from one CPU's slots to the next one's
}

// LiveMap returns the description of the counters' map.
func (rs *RuleSet) LiveMap() (LiveMap, error) {
	if err := rs.enter(); err != nil {
		return LiveMap{}, err
	}
	defer rs.mu.Unlock()
	if rs.epochErr != nil {
		return LiveMap{}, rs.epochErr
	}
	m := rs.maps.counters
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
		FD: host.FD(), ID: uint32(id), Epoch: atomic.LoadUint64(&m.words[rs.g.counterBytes()/8]),
		CPUs: rs.g.cpus, Counters: rs.g.counters, Stride: rs.g.block,
	}, nil
}

// Base returns the value that the slot of a counter had when its count began: Read subtracts it. The counter is in
// use.
func (rs *RuleSet) Base(id uint32) Pair { return rs.values.base[id].since(sums{}) }

// raiseEpoch makes the slots that an earlier process has told others worthless to them, before any rule or counter
// changes. The map is frozen, so a program of the kernel stores the word. Counting goes on without it.
func (rs *RuleSet) raiseEpoch() error {
	host := rs.maps.counters.hostMap()
	if host == nil {
		rs.maps.counters.words[rs.g.counterBytes()/8]++
		return nil
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "ft_epoch", Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
			asm.LoadMapValue(asm.R1, host.FD(), uint32(rs.g.counterBytes())),
			asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord),
			asm.Add.Imm(asm.R2, 1),
			asm.StoreMem(asm.R1, 0, asm.R2, asm.DWord),
			asm.Mov.Imm(asm.R0, verdictPass),
			asm.Return(),
		},
	})
	if err != nil {
		return fmt.Errorf("loading the program that stores the epoch of the counters: %w", explain(err))
	}
	defer p.Close()
	if _, err := p.Run(&ebpf.RunOptions{Data: make([]byte, MinRun)}); err != nil {
		return fmt.Errorf("storing the epoch of the counters: %w", explain(err))
	}
	return nil
}

// epochBytes is the room of the epoch behind the counters: a page, so that no CPU's counters share a line with it. Its
// second word is not zero where an older version has marked packets.
func epochBytes() int { return os.Getpagesize() }
