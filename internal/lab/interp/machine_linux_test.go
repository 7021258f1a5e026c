package interp_test

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/flowtally/flowtally/internal/lab/interp"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// The program computes, jumps, calls a function and uses its stack. The kernel and the machine return the same for it.
func TestMachineReturnsWhatTheKernelDoes(t *testing.T) {
	need.BPF(t)
	spec := &ebpf.ProgramSpec{
		Type: ebpf.XDP,
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R6, asm.R1, 0, asm.Word).WithSymbol("main"),
			asm.LoadMem(asm.R7, asm.R1, 4, asm.Word),
			asm.Mov.Reg(asm.R2, asm.R6),
			asm.Add.Imm(asm.R2, 8),
			asm.Mov.Imm(asm.R0, 1),
			asm.JGT.Reg(asm.R2, asm.R7, "end"),
			asm.LoadMem(asm.R1, asm.R6, 0, asm.Word),
			asm.HostTo(asm.BE, asm.R1, asm.Word),
			asm.StoreMem(asm.RFP, -8, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R2, -3),
			asm.Call.Label("sum"),
			asm.LoadMem(asm.R1, asm.RFP, -8, asm.DWord),
			asm.ArSh.Imm32(asm.R1, 3),
			asm.Xor.Reg(asm.R0, asm.R1),
			asm.Return().WithSymbol("end"),
			asm.Mov.Reg(asm.R0, asm.R1).WithSymbol("sum"),
			asm.Mul.Imm32(asm.R0, 77),
			asm.Add.Reg(asm.R0, asm.R2),
			asm.Return(),
		},
		License: "GPL",
	}
	p, err := ebpf.NewProgram(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()

	for i := range byte(16) {
		frame := make([]byte, 64)
		copy(frame, []byte{i * 17, i, 255 - i, 128 + i})
		want, err := p.Run(&ebpf.RunOptions{Data: frame})
		if err != nil {
			t.Fatal(err)
		}

		m, err := interp.Loaded(p)
		if err != nil {
			t.Fatal(err)
		}
		got, c, err := m.Run(m.Packet(frame))
		if err != nil {
			t.Fatal(err)
		}
		if uint32(got) != want || c.Calls != 1 {
			t.Errorf("frame % x: %#x in %d calls, the kernel returns %#x", frame[:4], uint32(got), c.Calls, want)
		}
	}
}
