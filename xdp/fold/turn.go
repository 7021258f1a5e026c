package fold

import "github.com/cilium/ebpf/asm"

// Jumps over no instruction mark what goes aside (FT_ASIDE of bpf/config.h): the other way goes straight on from the test.

// isAside reports whether every way from i goes over a mark before it divides or ends.
func (f *function) isAside(i int) bool {
	for range f.insns { // no more steps: a loop that nothing leaves has no mark
		if i >= len(f.insns) {
			return false
		}
		if !f.gone[i] {
			if f.aside[i] {
				return true
			}
			if isConditional(&f.insns[i]) || isExit(&f.insns[i]) {
				return false
			}
		}
		if behind, target := f.next(i); behind >= 0 {
			i = behind
		} else {
			i = target
		}
	}
	return false
}

// turn inverts conditional jumps that are passed to go aside.
func (f *function) turn() {
	for i := range f.insns {
		if !f.gone[i] && isConditional(&f.insns[i]) && f.isAside(f.behind[i]) && !f.isAside(f.targets[i]) {
			f.invert(i)
		}
	}
}

// invert makes a conditional jump lead to what was behind it, and puts its target there. A few jumps have no inverse and stay.
func (f *function) invert(i int) {
	op, ok := inverse(f.insns[i].OpCode.JumpOp())
	if !ok {
		return
	}
	f.insns[i].OpCode = f.insns[i].OpCode.SetJumpOp(op)
	f.behind[i], f.targets[i] = f.targets[i], f.behind[i]
}

// inverse returns the comparison that jumps if op does not.
func inverse(op asm.JumpOp) (asm.JumpOp, bool) {
	switch op {
	case asm.JEq:
		return asm.JNE, true
	case asm.JNE:
		return asm.JEq, true
	case asm.JGT:
		return asm.JLE, true
	case asm.JLE:
		return asm.JGT, true
	case asm.JGE:
		return asm.JLT, true
	case asm.JLT:
		return asm.JGE, true
	case asm.JSGT:
		return asm.JSLE, true
	case asm.JSLE:
		return asm.JSGT, true
	case asm.JSGE:
		return asm.JSLT, true
	case asm.JSLT:
		return asm.JSGE, true
	}
	return op, false
}

// testBits makes one jump of a mask and the comparison of its result with 0, if nobody else reads the result. If the register is
// a copy that was made for the mask, the jump tests the original.
func (f *function) testBits() {
	live := f.liveBefore()
	ways := f.ways()
	before := -1 // the instruction that leads to i alone, and to nothing else
	for i := range f.insns {
		if f.gone[i] {
			continue
		}
		copied := before
		before = -1
		if !f.isConditionalOrEnd(i) && ways[f.skip(f.behind[i])] == 1 {
			before = i
		}

		mask := &f.insns[i]
		if i == 0 || !isMask(mask) || before != i {
			continue
		}
		if copied >= 0 && f.skip(f.behind[copied]) != i {
			copied = -1
		}
		at := f.skip(f.behind[i])
		jump := &f.insns[at]
		if !isConditional(jump) || jump.OpCode.JumpOp() != asm.JNE || jump.OpCode.Source() != asm.ImmSource || jump.Constant != 0 ||
			jump.Dst != mask.Dst || f.liveBehind(at, live)&set(mask.Dst) != 0 {
			continue
		}
		if mask.OpCode.Class() == asm.ALUClass { // the upper half of the result is 0
			jump.OpCode = jump.OpCode&^classMask | asm.OpCode(asm.Jump32Class)
		}
		jump.OpCode = jump.OpCode.SetJumpOp(asm.JSet)
		jump.Constant = mask.Constant
		f.leaveOut(i)

		if copied <= 0 {
			continue
		}
		if move := &f.insns[copied]; isCopy(move) && move.Dst == mask.Dst {
			if move.OpCode.Class() == asm.ALUClass {
				jump.OpCode = jump.OpCode&^classMask | asm.OpCode(asm.Jump32Class)
			}
			jump.Dst = move.Src
			f.leaveOut(copied)
		}
	}
}

// isConditionalOrEnd reports whether something else than the next instruction may follow.
func (f *function) isConditionalOrEnd(i int) bool {
	behind, target := f.next(i)
	return behind < 0 || target >= 0
}

// isCopy reports whether an instruction copies a register.
func isCopy(ins *asm.Instruction) bool {
	return ins.OpCode.Class().IsALU() && ins.OpCode.ALUOp() == asm.Mov && ins.OpCode.Source() == asm.RegSource && ins.Offset == 0
}

// classMask are the bits of an opcode that tell its class.
const classMask = 7

// isMask reports whether an instruction leaves some bits of a register.
func isMask(ins *asm.Instruction) bool {
	return ins.OpCode.Class().IsALU() && ins.OpCode.ALUOp() == asm.And && ins.OpCode.Source() == asm.ImmSource && !isPatched(ins)
}

// ways returns how many instructions lead to each one, over instructions that do nothing.
func (f *function) ways() []int {
	ways := make([]int, len(f.insns)+1)
	for i := range f.insns {
		if _, onward := f.onward(i); onward && i != 0 {
			continue
		}
		behind, target := f.next(i)
		for _, to := range []int{behind, target} {
			if to >= 0 && to < len(f.insns) {
				ways[f.skip(to)]++
			}
		}
	}
	return ways
}
