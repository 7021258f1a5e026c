package xdp

import (
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// raiseEpoch warns processes that map the slots by themselves: from now on, a slot may get another owner. See LiveMap. Open calls
// it before any counter or rule changes. The map is frozen, so only a program can store the new epoch. If that fails, counting
// still works, and LiveMap returns the error.
func (dp *Datapath) raiseEpoch() error {
	host := dp.maps.counters.hostMap()
	if host == nil {
		dp.maps.counters.words[dp.g.counterBytes()/8]++
		return nil
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "ft_epoch", Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
			asm.LoadMapValue(asm.R1, host.FD(), uint32(dp.g.counterBytes())),
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

// epochBytes is the space for the epoch after the counters. A page of its own keeps it off the cache lines that CPUs count on. Its
// second word is not 0 if an older version has marked packets.
func epochBytes() int { return os.Getpagesize() }
