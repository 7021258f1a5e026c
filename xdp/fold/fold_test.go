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

// What goes aside is behind the rest, and the test before it leads there.
func TestWhatGoesAsideIsOutOfTheWay(t *testing.T) {
	insns := asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word).WithSymbol("program"),
		asm.Mov.Imm(asm.R0, 1),
		asm.And.Imm(asm.R2, 4),
		{OpCode: asm.JEq.Op(asm.ImmSource), Dst: asm.R2, Offset: 2},
		jumpAlways,
		asm.Mov.Imm(asm.R0, 2),
		asm.StoreMem(asm.R1, 8, asm.R0, asm.DWord),
		asm.Return(),
	}
	folded, err := Program(insns, program{section: make([]byte, sectionSize)}.constants())
	if err != nil {
		t.Fatal(err)
	}
	for word, want := range map[byte]int{0: 5, 4: 7} {
		packet := make([]byte, packetSize)
		packet[0] = word
		if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
			packet[0], packet[3] = 0, word
		}
		if _, _, c := run(t, folded, make([]byte, sectionSize), packet); c.Instructions != want {
			t.Errorf("%d instructions for a word of %d, want %d\n%v", c.Instructions, word, want, folded)
		}
	}
	if last := folded[len(folded)-1]; last.OpCode.JumpOp() != asm.Ja {
		t.Errorf("want the instruction that goes aside and a jump at the end, got\n%v", folded)
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
		p.insns = append(p.insns, drawInstructions(t)...)
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

// drawInstructions draws one instruction, or a few of which fold makes fewer.
func drawInstructions(t *rapid.T) asm.Instructions {
	switch rapid.IntRange(0, 9).Draw(t, "kind of instructions") {
	case 0: // with a distance of 0 it marks what goes aside
		return asm.Instructions{jumpAlways}
	case 1:
		r := register(t)
		mask := asm.And.Imm(r, int32(drawNumber(t)))
		if rapid.Bool().Draw(t, "32 bits") {
			mask = asm.And.Imm32(r, int32(drawNumber(t)))
		}
		jump := asm.Instruction{Dst: r}
		jump.OpCode = rapid.SampledFrom([]asm.OpCode{
			asm.JEq.Op(asm.ImmSource), asm.JNE.Op(asm.ImmSource), jump32(asm.JEq), jump32(asm.JNE),
		}).Draw(t, "condition")
		return asm.Instructions{mask, jump, jumpAlways, asm.LoadMem(r, asm.R9, 0, asm.Word)}
	}
	return asm.Instructions{drawInstruction(t)}
}

func jump32(op asm.JumpOp) asm.OpCode {
	return asm.OpCode(asm.Jump32Class).SetJumpOp(op).SetSource(asm.ImmSource)
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
		return asm.Instruction{OpCode: jump32(jump), Dst: dst, Constant: int64(imm)}
	}
	return asm.Instruction{OpCode: jump.Op(asm.ImmSource), Dst: dst, Constant: int64(imm)}
}
