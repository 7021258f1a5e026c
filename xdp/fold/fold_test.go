package fold

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/internal/lab/interp"
)

const (
	sectionName = ".rodata"
	sectionMap  = 1 // the number of the map in the instructions
	sectionSize = 64
	packetSize  = 64
)

// program is a random program. R1 points to a packet, R6 to the section, and jumps lead forward only.
type program struct {
	insns   asm.Instructions
	section []byte
}

func (p program) constants() *ebpf.VariableSpec {
	return &ebpf.VariableSpec{Name: "constants", SectionName: sectionName, Value: p.section}
}

// run returns what the program leaves for its caller and in the packet.
func run(t interface{ Fatal(...any) }, insns asm.Instructions, section, packet []byte) (r0 uint64, after []byte, c interp.Counts) {
	after = slices.Clone(packet)
	m := interp.New(insns, map[uint32][]byte{sectionMap: section})
	r0, c, err := m.Run(m.Memory.Map("the packet", after))
	if err != nil {
		t.Fatal(err)
	}
	return r0, after, c
}

func TestFoldedProgramsDoTheSameInNoMoreInstructions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProgram(t)
		folded, err := Program(p.insns, p.constants())
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			packet := rapid.SliceOfN(rapid.Byte(), packetSize, packetSize).Draw(t, "packet")
			r0, after, before := run(t, p.insns, p.section, packet)
			foldedR0, foldedAfter, now := run(t, folded, p.section, packet)
			if r0 != foldedR0 || !bytes.Equal(after, foldedAfter) {
				t.Fatalf("R0 %#x, packet %x; folded %#x, %x\n%v\n%v", r0, after, foldedR0, foldedAfter, p.insns, folded)
			}
			if now.Instructions > before.Instructions {
				t.Fatalf("%d instructions, folded %d\n%v\n%v", before.Instructions, now.Instructions, p.insns, folded)
			}
		}
	})
}

// What only such a jump compares is left out with it.
func TestJumpsThatDecideNothingAreLeftOut(t *testing.T) {
	insns := asm.Instructions{
		asm.LoadMem(asm.R0, asm.R1, 0, asm.DWord).WithSymbol("program"),
		asm.LoadMem(asm.R2, asm.R1, 8, asm.DWord),
		{OpCode: asm.JEq.Op(asm.ImmSource), Dst: asm.R2, Constant: 5, Offset: 1},
		asm.Mov.Imm(asm.R3, 1), // nobody reads it
		asm.Return(),
	}
	folded, err := Program(insns, program{section: make([]byte, sectionSize)}.constants())
	if err != nil {
		t.Fatal(err)
	}
	if len(folded) != 2 {
		t.Errorf("want the first load and the return, got\n%v", folded)
	}
}

func drawProgram(t *rapid.T) program {
	p := program{section: make([]byte, sectionSize)}
	for i := range sectionSize / 8 {
		binary.NativeEndian.PutUint64(p.section[8*i:], drawNumber(t))
	}

	p.insns = asm.Instructions{
		asm.Mov.Reg(asm.R9, asm.R1).WithSymbol("program"),
		asm.LoadMapValue(asm.R6, sectionMap, 0).WithReference(sectionName),
	}
	for r := asm.R0; r <= asm.R8; r++ {
		if r != asm.R6 {
			p.insns = append(p.insns, asm.LoadMem(r, asm.R9, int16(r), asm.DWord))
		}
	}
	start := len(p.insns)
	for range rapid.IntRange(1, 40).Draw(t, "instructions") {
		p.insns = append(p.insns, drawInstruction(t))
	}
	end := len(p.insns)
	p.insns = append(p.insns, asm.Return())

	// Each jump leads to a random instruction behind it.
	for i := start; i < end; i++ {
		if !isJump(&p.insns[i]) {
			continue
		}
		words := 0
		for _, ins := range p.insns[i+1 : rapid.IntRange(i+1, end).Draw(t, "target")] {
			words += int(ins.Width())
		}
		p.insns[i].Offset = int16(words)
	}
	return p
}

// register draws one that programs compute with. R6 and R9 stay addresses.
func register(t *rapid.T) asm.Register {
	return rapid.SampledFrom([]asm.Register{asm.R0, asm.R1, asm.R2, asm.R3, asm.R4, asm.R5, asm.R7, asm.R8}).Draw(t, "register")
}

// drawNumber draws one that simplifications look for, as often as any other.
func drawNumber(t *rapid.T) uint64 {
	return rapid.OneOf(
		rapid.SampledFrom([]uint64{0, 1, 1<<64 - 1, 1<<32 - 1, 1 << 31, 1<<31 - 1, 0xff, 64}),
		rapid.Uint64(),
	).Draw(t, "number")
}

func drawInstruction(t *rapid.T) asm.Instruction {
	dst, src := register(t), register(t)
	imm := int32(drawNumber(t))
	size := rapid.SampledFrom([]asm.Size{asm.Byte, asm.Half, asm.Word, asm.DWord}).Draw(t, "size")
	op := rapid.SampledFrom([]asm.ALUOp{
		asm.Mov, asm.Add, asm.Sub, asm.Mul, asm.Div, asm.Mod, asm.Or, asm.And, asm.Xor, asm.LSh, asm.RSh, asm.ArSh,
	}).Draw(t, "operation")
	jump := rapid.SampledFrom([]asm.JumpOp{
		asm.JEq, asm.JNE, asm.JGT, asm.JGE, asm.JLT, asm.JLE, asm.JSet, asm.JSGT, asm.JSGE, asm.JSLT, asm.JSLE,
	}).Draw(t, "condition")

	switch rapid.IntRange(0, 13).Draw(t, "kind") {
	case 0, 1, 2:
		offset := rapid.IntRange(0, sectionSize-8).Draw(t, "offset")
		return asm.LoadMem(dst, asm.R6, int16(offset), size)
	case 3:
		return asm.LoadImm(dst, int64(drawNumber(t)), asm.DWord)
	case 4:
		return asm.LoadMem(dst, asm.R9, int16(rapid.IntRange(0, packetSize-8).Draw(t, "offset")), size)
	case 5:
		return asm.StoreMem(asm.R9, int16(rapid.IntRange(0, packetSize-8).Draw(t, "offset")), src, size)
	case 6:
		return op.Reg(dst, src)
	case 7:
		return op.Reg32(dst, src)
	case 8:
		return op.Imm(dst, imm)
	case 9:
		return op.Imm32(dst, imm)
	case 10:
		order := rapid.SampledFrom([]asm.Endianness{asm.BE, asm.LE}).Draw(t, "order")
		width := rapid.SampledFrom([]asm.Size{asm.Half, asm.Word, asm.DWord}).Draw(t, "width")
		return asm.HostTo(order, dst, width)
	case 11:
		return asm.Instruction{OpCode: jump.Op(asm.RegSource), Dst: dst, Src: src}
	case 12:
		op := asm.OpCode(asm.Jump32Class).SetJumpOp(jump).SetSource(asm.ImmSource)
		return asm.Instruction{OpCode: op, Dst: dst, Constant: int64(imm)}
	}
	return asm.Instruction{OpCode: jump.Op(asm.ImmSource), Dst: dst, Constant: int64(imm)}
}
