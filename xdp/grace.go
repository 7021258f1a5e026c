package xdp

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/flowtally/flowtally/internal/kernel"
)

// grace waits for RCU grace periods. It replaces the inner map of an array of maps. That system call returns only after a grace
// period, because user space may free the old inner map next (maybe_wait_bpf_programs in kernel/bpf/syscall.c, since 4.20). No
// other system call guarantees this. It takes about 10 ms.
type grace struct {
	outer, inner *ebpf.Map
	kernel       kernel.Kernel // Options.Kernel
}

func newGrace(k kernel.Kernel) (*grace, error) {
	if k != nil {
		return &grace{kernel: k}, nil
	}
	inner := &ebpf.MapSpec{Name: "ft_grace_in", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	in, err := ebpf.NewMap(inner)
	if err != nil {
		return nil, fmt.Errorf("creating a map to wait with: %w", explain(err))
	}
	out, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "ft_grace", Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1, InnerMap: inner,
	})
	if err != nil {
		in.Close()
		return nil, fmt.Errorf("creating a map to wait with: %w", explain(err))
	}
	return &grace{outer: out, inner: in}, nil
}

func (g *grace) wait() error {
	if g.kernel != nil {
		return g.kernel.Wait()
	}
	if err := g.outer.Put(uint32(0), uint32(g.inner.FD())); err != nil {
		return fmt.Errorf("waiting for running programs: %w", err)
	}
	return nil
}

func (g *grace) close() {
	g.outer.Close()
	g.inner.Close()
}

// wait returns once every program running at the call has ended. Freed counters can be allocated again afterwards.
func (dp *Datapath) wait() error {
	if err := dp.grace.wait(); err != nil {
		return err
	}
	if dp.pool != nil {
		dp.pool.cooled()
	}
	return nil
}
