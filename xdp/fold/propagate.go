package fold

import (
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/flowtally/flowtally/internal/insn"
)

// value is what a register holds on every way to an instruction.
type value struct {
	kind kind
	v    uint64 // the constant, or the offset of the address in the section
}

type kind uint8

const (
	unknown  kind = iota
	constant      // v
	address       // v bytes into the section of the constants
)

// state is the value of each register before an instruction.
type state struct {
	reached bool // some way leads to the instruction
	reg     [asm.RFP + 1]value
}

// merge adds another way to the instruction. It reports whether that changed the state.
func (s *state) merge(way *state) (changed bool) {
	if !s.reached {
		*s = *way
		return true
	}
	for r := range s.reg {
		if s.reg[r].kind != unknown && s.reg[r] != way.reg[r] {
			s.reg[r] = value{}
			changed = true
		}
	}
	return changed
}

// propagate returns the state before each instruction. It follows only branches that the constants do not rule out (sparse
// conditional constant propagation: Wegman and Zadeck, 1991).
func (f *function) propagate() []state {
	states := make([]state, len(f.insns))
	states[0].reached = true

	for work := []int{0}; len(work) > 0; {
		i := work[len(work)-1]
		work = work[:len(work)-1]
		ins := &f.insns[i]
		after := states[i]
		f.execute(ins, &after)

		behind, target := f.next(i)
		if taken, ok := decided(ins, &states[i]); ok && taken {
			behind = -1
		} else if ok {
			target = -1
		}
		for _, to := range []int{behind, target} {
			if to >= 0 && states[to].merge(&after) {
				work = append(work, to)
			}
		}
	}
	return states
}

// decided reports whether a conditional jump is taken, if the state tells.
func decided(ins *asm.Instruction, s *state) (taken, ok bool) {
	if !isConditional(ins) {
		return false, false
	}
	a, b := s.reg[ins.Dst], operand(ins, s)
	if a.kind != constant || b.kind != constant {
		return false, false
	}
	return insn.IsTaken(ins.OpCode, a.v, b.v)
}

// operand returns the second operand of a computation or of a comparison.
func operand(ins *asm.Instruction, s *state) value {
	if ins.OpCode.Source() == asm.RegSource {
		return s.reg[ins.Src]
	}
	return value{constant, uint64(ins.Constant)}
}

// isPatched reports whether the loader will put an offset or a number of a kernel type into the instruction.
func isPatched(ins *asm.Instruction) bool { return btf.CORERelocationMetadata(ins) != nil }

// execute changes a state as the instruction does.
func (f *function) execute(ins *asm.Instruction, s *state) {
	switch class := ins.OpCode.Class(); {
	case isCall(ins):
		for r := asm.R0; r <= asm.R5; r++ {
			s.reg[r] = value{}
		}
	case class.IsJump():
	case class.IsStore():
		// An atomic operation may load the old value into the source or into R0. One that loads alone has the class of stores too.
		if ins.OpCode.AtomicOp() != asm.InvalidAtomic {
			s.reg[ins.Dst] = value{}
			s.reg[ins.Src] = value{}
			s.reg[asm.R0] = value{}
		}
	case isPatched(ins):
		s.reg[ins.Dst] = value{}
	case ins.OpCode.IsDWordLoad():
		s.reg[ins.Dst] = f.immediate(ins)
	case class == asm.LdXClass:
		s.reg[ins.Dst] = f.load(ins, s.reg[ins.Src])
	case class.IsALU():
		s.reg[ins.Dst] = compute(ins, s.reg[ins.Dst], operand(ins, s))
	default:
		for r := range s.reg {
			s.reg[r] = value{}
		}
	}
}

// immediate returns the value of a load of a 64-bit immediate.
func (f *function) immediate(ins *asm.Instruction) value {
	switch {
	case ins.Src == asm.PseudoMapValue && ins.Reference() == f.constants.SectionName:
		return value{address, uint64(ins.Constant) >> 32}
	case ins.Src == asm.R0 && ins.Reference() == "":
		return value{constant, uint64(ins.Constant)}
	}
	return value{}
}

// load returns the value of a load from an address.
func (f *function) load(ins *asm.Instruction, from value) value {
	if from.kind != address || ins.OpCode.Mode() != asm.MemMode {
		return value{}
	}
	offset := int64(from.v) + int64(ins.Offset) - int64(f.constants.Offset)
	size := int64(ins.OpCode.Size().Sizeof())
	if offset < 0 || offset+size > int64(len(f.constants.Value)) {
		return value{}
	}
	return value{constant, insn.Load(f.constants.Value[offset:][:size])}
}

// compute returns the result of a computation.
func compute(ins *asm.Instruction, a, b value) value {
	op := ins.OpCode.ALUOp()
	wide := ins.OpCode.Class() == asm.ALU64Class
	switch {
	case op == asm.Mov && ins.Offset != 0:
		return value{} // the move extends the sign, or converts an address
	case op == asm.Mov && wide:
		return b
	case op == asm.And && (isZero(a) || isZero(b)):
		return value{constant, 0}
	case a.kind == address && b.kind == constant && wide && op == asm.Add:
		return value{address, a.v + b.v}
	case b.kind != constant:
		return value{}
	case a.kind != constant && op != asm.Mov:
		return value{}
	}
	if v, ok := insn.Compute(ins.OpCode, a.v, b.v); ok {
		return value{constant, v}
	}
	return value{}
}

func isZero(v value) bool { return v == value{constant, 0} }
