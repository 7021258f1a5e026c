package fold

import (
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// registers is a set of registers, as bits.
type registers uint16

func set(list ...asm.Register) (s registers) {
	for _, r := range list {
		s |= 1 << r
	}
	return s
}

// arguments are the registers that a function may read, and that a call leaves undefined.
const arguments registers = 1<<asm.R1 | 1<<asm.R2 | 1<<asm.R3 | 1<<asm.R4 | 1<<asm.R5

// effects returns the registers that an instruction reads and those that it overwrites. If it is pure, it has no other effect.
func (f *function) effects(ins *asm.Instruction) (reads, writes registers, pure bool) {
	class := ins.OpCode.Class()
	switch {
	case isCall(ins):
		return f.argumentsOf(ins), arguments | set(asm.R0), false
	case isExit(ins):
		return set(asm.R0), 0, false
	case class.IsJump():
		if !isConditional(ins) {
			return 0, 0, false
		}
		return reads2(ins), 0, false
	case class == asm.StXClass && ins.OpCode.Mode() == asm.AtomicMode:
		return set(ins.Dst, ins.Src, asm.R0), 0, false // it may compare R0
	case class == asm.StXClass:
		return set(ins.Dst, ins.Src), 0, false
	case class == asm.StClass:
		return set(ins.Dst), 0, false
	case class == asm.LdXClass:
		return set(ins.Src), set(ins.Dst), true
	case ins.OpCode.IsDWordLoad():
		return 0, set(ins.Dst), true
	case class.IsALU() && isMove(ins.OpCode.ALUOp()):
		return sourceOf(ins), set(ins.Dst), true
	case class.IsALU():
		return reads2(ins), set(ins.Dst), true
	}
	return ^registers(0), 0, false
}

// argumentsOf returns the registers that a call reads. An unknown function may read all arguments.
func (f *function) argumentsOf(call *asm.Instruction) registers {
	parameters := mostParameters
	switch {
	case call.IsFunctionCall():
		if n, ok := f.parameters[call.Reference()]; ok {
			parameters = n
		}
	case call.IsBuiltinCall() && asm.BuiltinFunc(call.Constant) == asm.FnGetSmpProcessorId:
		parameters = 0
	case call.IsBuiltinCall() && asm.BuiltinFunc(call.Constant) == asm.FnXdpGetBuffLen:
		parameters = 1
	case call.IsKfuncCall() && call.Reference() == "bpf_cast_to_kern_ctx":
		parameters = 1
	}
	return arguments & (set(asm.R1+asm.Register(parameters)) - 1)
}

// mostParameters is the largest number of parameters of a function.
const mostParameters = 5

// parametersOf returns how many parameters each global function of a program has, by its name. Of other functions the compiler may
// change the parameters, and BTF would not say so.
func parametersOf(insns asm.Instructions) map[string]int {
	number := map[string]int{}
	for i := range insns {
		if fn := btf.FuncMetadata(&insns[i]); fn != nil && fn.Linkage == btf.GlobalFunc {
			if proto, ok := fn.Type.(*btf.FuncProto); ok {
				number[fn.Name] = len(proto.Params)
			}
		}
	}
	return number
}

func isMove(op asm.ALUOp) bool {
	return op == asm.Mov || op == asm.MovSX8 || op == asm.MovSX16 || op == asm.MovSX32
}

// sourceOf returns the source register of an instruction that has one.
func sourceOf(ins *asm.Instruction) registers {
	if ins.OpCode.Source() == asm.RegSource {
		return set(ins.Src)
	}
	return 0
}

// reads2 returns the registers of both operands.
func reads2(ins *asm.Instruction) registers { return set(ins.Dst) | sourceOf(ins) }

// removeDead leaves out instructions whose results nobody reads, and jumps that lead to the same instruction either way. It keeps
// the first one, to which the symbol of the function is attached.
func (f *function) removeDead() error {
	for {
		for f.removeDeadOnce() {
		}
		if f.hasEmptyLoop() {
			return errEmptyLoop
		}
		if !f.removeIdleJumps() {
			return nil
		}
	}
}

// removeDeadOnce leaves out what is dead now. Then other results may have no reader any more.
func (f *function) removeDeadOnce() (removed bool) {
	live := f.liveBefore()
	for i := range f.insns {
		if i == 0 || f.gone[i] {
			continue
		}
		_, writes, pure := f.effects(&f.insns[i])
		if pure && writes&f.liveBehind(i, live) == 0 {
			f.leaveOut(i)
			removed = true
		}
	}
	return removed
}

// removeIdleJumps leaves out conditional jumps that lead to the same instruction either way. Then nobody may read what they compare.
// A jump to itself stays: without it, an empty loop would be left.
func (f *function) removeIdleJumps() (removed bool) {
	for i := range f.insns {
		if i == 0 || f.gone[i] || !isConditional(&f.insns[i]) {
			continue
		}
		next := f.skip(f.behind[i])
		if next != i && next == f.skip(f.targets[i]) {
			f.leaveOut(i)
			removed = true
		}
	}
	return removed
}

// liveBefore returns the registers that may be read from each instruction on before they are overwritten.
func (f *function) liveBefore() []registers {
	live := make([]registers, len(f.insns))
	for changed := true; changed; {
		changed = false
		for i := len(f.insns) - 1; i >= 0; i-- {
			now := f.liveBehind(i, live)
			if !f.gone[i] {
				reads, writes, _ := f.effects(&f.insns[i])
				now = now&^writes | reads
			}
			if now != live[i] {
				live[i] = now
				changed = true
			}
		}
	}
	return live
}

// liveBehind returns the registers that may be read after an instruction.
func (f *function) liveBehind(i int, before []registers) (live registers) {
	behind, target := f.next(i)
	for _, to := range []int{behind, target} {
		if to >= 0 && to < len(before) {
			live |= before[to]
		}
	}
	return live
}
