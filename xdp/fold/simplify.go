package fold

import (
	"math"

	"github.com/cilium/ebpf/asm"
)

// simplify rewrites the instructions that use constants, and leaves out those that no way leads to. The states are those before
// each instruction.
func (f *function) simplify(states []state) {
	for i := range f.insns {
		ins := &f.insns[i]
		switch {
		case !states[i].reached:
			f.leaveOut(i)
		case isPatched(ins):
		case isConditional(ins):
			f.simplifyJump(i, &states[i])
		case ins.OpCode.Class().IsALU(), ins.OpCode.Class().IsLoad():
			f.simplifyResult(i, &states[i])
		}
	}
}

// simplifyJump decides a conditional jump, or gives it its operand as an immediate.
func (f *function) simplifyJump(i int, before *state) {
	ins := &f.insns[i]
	taken, ok := decided(ins, before)
	switch {
	case ok && taken:
		f.insns[i] = jumpAlways.WithMetadata(ins.Metadata)
	case ok:
		f.leaveOut(i)
	default:
		if before.reg[ins.Dst].kind == constant && isSymmetric(ins) {
			ins.Dst, ins.Src = ins.Src, ins.Dst
		}
		takeImmediate(ins, before)
	}
}

// isSymmetric reports whether a jump compares two registers of which either may be the first.
func isSymmetric(jump *asm.Instruction) bool {
	if jump.OpCode.Source() != asm.RegSource {
		return false
	}
	op := jump.OpCode.JumpOp()
	return op == asm.JEq || op == asm.JNE || op == asm.JSet
}

var jumpAlways = asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Ja)}

// simplifyResult replaces an instruction by its result, if that is known, or simplifies it.
func (f *function) simplifyResult(i int, before *state) {
	ins := &f.insns[i]
	after := *before
	f.execute(ins, &after)
	if result := after.reg[ins.Dst]; result.kind == constant {
		setImmediate(ins, result.v)
		return
	}
	if !ins.OpCode.Class().IsALU() {
		return
	}

	op := ins.OpCode.ALUOp()
	a, b := before.reg[ins.Dst], operand(ins, before)
	wide := ins.OpCode.Class() == asm.ALU64Class // the others clear the upper half of the register
	switch {
	case wide && b.kind == constant && isNeutral(op, b.v):
		f.leaveOut(i)
	case wide && a.kind == constant && isNeutral(op, a.v) && commutes(op):
		ins.OpCode = asm.Mov.Op(asm.RegSource) // b is a register: a constant operand would make a constant result
	default:
		takeImmediate(ins, before)
	}
}

// isNeutral reports whether v as the second operand leaves the first one.
func isNeutral(op asm.ALUOp, v uint64) bool {
	switch op {
	case asm.And:
		return v == math.MaxUint64
	case asm.Add, asm.Sub, asm.Or, asm.Xor, asm.LSh, asm.RSh, asm.ArSh:
		return v == 0
	case asm.Mul:
		return v == 1
	}
	return false
}

// commutes reports whether the order of the operands does not matter.
func commutes(op asm.ALUOp) bool {
	switch op {
	case asm.And, asm.Add, asm.Or, asm.Xor, asm.Mul:
		return true
	}
	return false
}

// takeImmediate replaces the source register of a computation or comparison by the constant that it has, if the instruction has
// room for the constant.
func takeImmediate(ins *asm.Instruction, before *state) {
	if ins.OpCode.Source() != asm.RegSource || before.reg[ins.Src].kind != constant {
		return
	}
	v := before.reg[ins.Src].v
	switch ins.OpCode.Class() {
	case asm.ALUClass, asm.Jump32Class:
		v = uint64(int64(int32(v))) // the instruction uses the lower half alone
	}
	if !fits(v) || isRefused(ins.OpCode, v) {
		return
	}
	ins.OpCode = ins.OpCode.SetSource(asm.ImmSource)
	ins.Src = 0
	ins.Constant = int64(v)
}

// isRefused reports whether the verifier refuses v as an immediate, although it accepts v in a register: a division by 0, a shift by
// more bits than the register has, or a move that extends the sign.
func isRefused(op asm.OpCode, v uint64) bool {
	bits := uint64(64)
	if op.Class() == asm.ALUClass {
		bits = 32
	}

	switch op.ALUOp() {
	case asm.Div, asm.Mod, asm.SDiv, asm.SMod:
		return v == 0
	case asm.LSh, asm.RSh, asm.ArSh:
		return v >= bits
	case asm.MovSX8, asm.MovSX16, asm.MovSX32:
		return true
	}
	return false
}

// fits reports whether the sign extension of an immediate of 32 bits can be v.
func fits(v uint64) bool { return int64(v) == int64(int32(v)) }

// setImmediate makes an instruction one that loads v into its destination.
func setImmediate(ins *asm.Instruction, v uint64) {
	load := asm.LoadImm(ins.Dst, int64(v), asm.DWord)
	switch {
	case fits(v):
		load = asm.Mov.Imm(ins.Dst, int32(v))
	case v <= math.MaxUint32:
		load = asm.Mov.Imm32(ins.Dst, int32(v))
	}
	*ins = load.WithMetadata(ins.Metadata)
}
