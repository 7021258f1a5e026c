package lab

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// counter is the smallest XDP program that counts: every packet that reaches it, with
// its bytes, per CPU. It takes the place of flowtally in the tests of the senders, and
// shares nothing with it.
type counter struct{ m *ebpf.Map }

// xdpCounter attaches a counter to e until the test ends. The program returns
// verdict: 1 drops, 2 passes. It spins for that many turns per packet.
func xdpCounter(t testing.TB, e *End, flags link.XDPAttachFlags, verdict, spin int32) *counter {
	t.Helper()
	need.BPF(t)
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 16, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "GPL", AttachType: ebpf.AttachXDP,
		Instructions: asm.Instructions{
			asm.FnXdpGetBuffLen.Call(),
			asm.Mov.Reg(asm.R6, asm.R0),
			asm.Mov.Imm(asm.R7, spin+1),
			asm.Sub.Imm(asm.R7, 1).WithSymbol("spin"),
			asm.JNE.Imm(asm.R7, 0, "spin"),
			asm.StoreImm(asm.RFP, -4, 0, asm.Word),
			asm.LoadMapPtr(asm.R1, m.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
			asm.Add.Imm(asm.R1, 1),
			asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
			asm.LoadMem(asm.R1, asm.R0, 8, asm.DWord),
			asm.Add.Reg(asm.R1, asm.R6),
			asm.StoreMem(asm.R0, 8, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, verdict).WithSymbol("out"),
			asm.Return(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close() // the link holds it
	err = e.NS.Do(func() error {
		l, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: e.Index, Flags: flags})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatalf("attaching to %s: %v", e.Name, err)
	}
	return &counter{m}
}

func (c *counter) read(t testing.TB) Tally {
	t.Helper()
	var values []Tally
	if err := c.m.Lookup(uint32(0), &values); err != nil {
		t.Fatal(err)
	}
	var sum Tally
	for _, v := range values {
		sum.Packets += v.Packets
		sum.Bytes += v.Bytes
	}
	return sum
}
