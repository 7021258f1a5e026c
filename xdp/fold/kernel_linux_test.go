package fold

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// jumpIf is a conditional jump over so many words.
func jumpIf(op asm.JumpOp, r asm.Register, v int64, words int16) asm.Instruction {
	return asm.Instruction{OpCode: op.Op(asm.ImmSource), Dst: r, Constant: v, Offset: words}
}

func jumpBy(words int16) asm.Instruction {
	ins := jumpAlways
	ins.Offset = words
	return ins
}

// constantIn loads the first word of the constants.
func constantIn(r asm.Register) asm.Instructions {
	return asm.Instructions{
		asm.LoadMapValue(r, 0, 0).WithReference(sectionName),
		asm.LoadMem(r, r, 0, asm.Word),
	}
}

// The kernel refuses some instructions that mean the same as ones that it accepts, and a function without a symbol. So these
// programs are loaded before and after folding.
func TestTheKernelAcceptsAFoldedProgramAndReturnsTheSame(t *testing.T) {
	need.BPF(t)
	queue := asm.LoadMem(asm.R0, asm.R1, 16, asm.Word) // rx_queue_index: unknown to fold

	tests := map[string]asm.Instructions{
		"begins with a jump": {
			jumpBy(2).WithSymbol("main"),
			asm.Mov.Imm(asm.R0, 1),
			asm.Return(),
			asm.Mov.Imm(asm.R0, 2),
			jumpBy(-4),
		},
		"a function begins with a jump that decides nothing": append(append(asm.Instructions{
			asm.Mov.Imm(asm.R6, 7).WithSymbol("main"),
			asm.Call.Label("f"),
			asm.Return(),
			jumpIf(asm.JEq, asm.R1, 0, 5).WithSymbol("f"),
		}, constantIn(asm.R2)...),
			jumpIf(asm.JEq, asm.R2, 0, 1),
			asm.StoreMem(asm.RFP, -8, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, 2),
			asm.Return(),
		),
	}
	ops := []asm.ALUOp{asm.Div, asm.Mod, asm.LSh, asm.RSh, asm.ArSh}
	for _, op := range ops {
		for name, ins := range map[string]asm.Instruction{"64": op.Reg(asm.R0, asm.R2), "32": op.Reg32(asm.R0, asm.R2)} {
			tests[fmt.Sprintf("%v of %s bits", op, name)] = append(append(
				asm.Instructions{queue.WithSymbol("main")}, constantIn(asm.R2)...), ins, asm.And.Imm(asm.R0, 0xff), asm.Return())
		}
	}

	for name, insns := range tests {
		for _, v := range []byte{0, 32, 64, 200} {
			t.Run(fmt.Sprintf("%s, %d", name, v), func(t *testing.T) {
				constants := &ebpf.VariableSpec{Name: "constants", SectionName: sectionName, Value: []byte{v, 0, 0, 0, 0, 0, 0, 0}}
				want := inKernel(t, insns, constants)
				folded, err := Program(insns, constants)
				if err != nil {
					t.Fatal(err)
				}
				if got := inKernel(t, folded, constants); got != want {
					t.Errorf("folded it returns %#x, before %#x\n%v\n%v", got, want, insns, folded)
				}
			})
		}
	}
}

// inKernel loads a program and runs it once.
func inKernel(t *testing.T, insns asm.Instructions, constants *ebpf.VariableSpec) uint32 {
	t.Helper()
	const readOnly = 1 << 7 // BPF_F_RDONLY_PROG
	spec := &ebpf.CollectionSpec{
		Maps: map[string]*ebpf.MapSpec{sectionName: {
			Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(constants.Value)), MaxEntries: 1, Flags: readOnly,
			Contents: []ebpf.MapKV{{Key: uint32(0), Value: constants.Value}},
		}},
		Programs: map[string]*ebpf.ProgramSpec{"main": {Type: ebpf.XDP, License: "GPL", Instructions: insns}},
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatalf("%v\n%v", err, insns)
	}
	defer coll.Close()
	v, err := coll.Programs["main"].Run(&ebpf.RunOptions{Data: make([]byte, 64)})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestProgramsThatFoldDoesNotUnderstandAreRefused(t *testing.T) {
	constants := &ebpf.VariableSpec{SectionName: sectionName, Value: make([]byte, 8)}
	_, err := Program(asm.Instructions{
		asm.LoadMem(asm.R0, asm.R1, 16, asm.Word).WithSymbol("main"),
		jumpIf(asm.JGT, asm.R0, 1, 1),
		asm.Return(),
		asm.Mov.Imm(asm.R3, 0),
		jumpBy(-2),
	}, constants)
	if !errors.Is(err, errEmptyLoop) {
		t.Errorf("a loop that does nothing: %v", err)
	}
	if _, err := Program(asm.Instructions{asm.Mov.Imm(asm.R0, 1).WithSymbol("main")}, constants); err == nil {
		t.Error("a function without an end was folded")
	}
}

func TestALoadByAnAtomicOperationIsUnknown(t *testing.T) {
	const loadAcquire = 1 << 16
	f := &function{constants: &ebpf.VariableSpec{SectionName: sectionName}}
	s := state{reached: true}
	s.reg[asm.R3] = value{constant, 5}
	ins := asm.Instruction{
		OpCode: asm.OpCode(asm.StXClass).SetMode(asm.AtomicMode).SetSize(asm.DWord).SetAtomicOp(loadAcquire),
		Dst:    asm.R3, Src: asm.RFP, Offset: -8,
	}
	f.execute(&ins, &s)
	if s.reg[asm.R3].kind != unknown {
		t.Errorf("R3 is %+v after a load into it", s.reg[asm.R3])
	}
}
