// Package insn has the arithmetic of BPF instructions (Documentation/bpf/standardization/instruction-set.rst of the kernel).
package insn

import (
	"encoding/binary"
	"math/bits"

	"github.com/cilium/ebpf/asm"
)

// isBig reports whether this machine has the most significant byte first.
func isBig() bool { return binary.NativeEndian.Uint16([]byte{0, 1}) == 1 }

// Compute returns the result of an instruction of the ALU classes for its destination a and its other operand b. It reports false
// for an operation that it does not know.
func Compute(op asm.OpCode, a, b uint64) (uint64, bool) {
	wide := op.Class() == asm.ALU64Class
	if op.ALUOp() == asm.Swap {
		return swap(a, b, wide || (op.Endianness() == asm.BE) != isBig())
	}
	if wide {
		return compute64(op.ALUOp(), a, b)
	}
	v, ok := compute32(op.ALUOp(), uint32(a), uint32(b))
	return uint64(v), ok
}

func compute64(op asm.ALUOp, a, b uint64) (uint64, bool) {
	switch op {
	case asm.Mov:
		return b, true
	case asm.Add:
		return a + b, true
	case asm.Sub:
		return a - b, true
	case asm.Mul:
		return a * b, true
	case asm.Div:
		if b == 0 {
			return 0, true
		}
		return a / b, true
	case asm.Mod:
		if b == 0 {
			return a, true
		}
		return a % b, true
	case asm.Or:
		return a | b, true
	case asm.And:
		return a & b, true
	case asm.Xor:
		return a ^ b, true
	case asm.LSh:
		return a << (b & 63), true
	case asm.RSh:
		return a >> (b & 63), true
	case asm.ArSh:
		return uint64(int64(a) >> (b & 63)), true
	case asm.Neg:
		return -a, true
	}
	return 0, false
}

func compute32(op asm.ALUOp, a, b uint32) (uint32, bool) {
	switch op {
	case asm.LSh:
		return a << (b & 31), true
	case asm.RSh:
		return a >> (b & 31), true
	case asm.ArSh:
		return uint32(int32(a) >> (b & 31)), true
	}

	// Of operands without an upper half, the other operations leave the same lower half in 64 bits.
	v, ok := compute64(op, uint64(a), uint64(b))
	return uint32(v), ok
}

// swap returns the low width bits of v, in the other byte order if reverse is set.
func swap(v, width uint64, reverse bool) (uint64, bool) {
	switch width {
	case 16:
		if reverse {
			v = uint64(bits.ReverseBytes16(uint16(v)))
		}
		return uint64(uint16(v)), true
	case 32:
		if reverse {
			v = uint64(bits.ReverseBytes32(uint32(v)))
		}
		return uint64(uint32(v)), true
	case 64:
		if reverse {
			v = bits.ReverseBytes64(v)
		}
		return v, true
	}
	return 0, false
}

// IsTaken reports whether a conditional jump is taken for its operands. It reports false for ok if it does not know the condition.
func IsTaken(op asm.OpCode, a, b uint64) (taken, ok bool) {
	signedA, signedB := int64(a), int64(b)
	if op.Class() == asm.Jump32Class {
		a, b = uint64(uint32(a)), uint64(uint32(b))
		signedA, signedB = int64(int32(uint32(a))), int64(int32(uint32(b)))
	}
	switch op.JumpOp() {
	case asm.JEq:
		return a == b, true
	case asm.JNE:
		return a != b, true
	case asm.JGT:
		return a > b, true
	case asm.JGE:
		return a >= b, true
	case asm.JLT:
		return a < b, true
	case asm.JLE:
		return a <= b, true
	case asm.JSet:
		return a&b != 0, true
	case asm.JSGT:
		return signedA > signedB, true
	case asm.JSGE:
		return signedA >= signedB, true
	case asm.JSLT:
		return signedA < signedB, true
	case asm.JSLE:
		return signedA <= signedB, true
	}
	return false, false
}

// Load returns the value of bytes in memory: 1, 2, 4 or 8.
func Load(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.NativeEndian.Uint16(b))
	case 4:
		return uint64(binary.NativeEndian.Uint32(b))
	}
	return binary.NativeEndian.Uint64(b)
}

// JumpWords returns how far a jump leads from the instruction behind it, in words of 8 bytes.
func JumpWords(ins *asm.Instruction) int {
	if ins.OpCode.Class() == asm.Jump32Class && ins.OpCode.JumpOp() == asm.Ja { // gotol
		return int(ins.Constant)
	}
	return int(ins.Offset)
}
