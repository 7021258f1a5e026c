package fold

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/flowtally/flowtally/internal/insn"
)

var (
	errTooFar    = errors.New("a jump is too long for its instruction")
	errEmptyLoop = errors.New("a loop does nothing")
)

// Program returns a program that does the same in fewer instructions. It takes instructions as [ebpf.LoadCollectionSpec] returns
// them, before the loader resolves references to maps and kernel types. Nobody may write the variable constants.
func Program(insns asm.Instructions, constants *ebpf.VariableSpec) (asm.Instructions, error) {
	var bodies []asm.Instructions
	parameters := parametersOf(insns)
	for _, body := range functions(insns) {
		f, err := newFunction(body, constants, parameters)
		if err != nil {
			return nil, fmt.Errorf("folding function %s: %w", body[0].Symbol(), err)
		}

		f.simplify(f.propagate())
		f.compact()
		if err := f.removeDead(); err != nil {
			return nil, fmt.Errorf("folding function %s: %w", body[0].Symbol(), err)
		}
		f.turn()
		f.testBits()
		folded, err := f.layout()
		if err != nil {
			return nil, fmt.Errorf("folding function %s: %w", body[0].Symbol(), err)
		}
		bodies = append(bodies, folded)
	}
	return called(bodies), nil
}

// called returns the first function, and those that it calls directly or through others. The kernel refuses a function that nobody
// calls.
func called(bodies []asm.Instructions) asm.Instructions {
	wanted := map[string]bool{bodies[0][0].Symbol(): true}
	for more := true; more; {
		more = false
		for _, body := range bodies {
			if !wanted[body[0].Symbol()] {
				continue
			}
			for i := range body {
				if name := body[i].Reference(); body[i].IsFunctionReference() && !wanted[name] {
					wanted[name] = true
					more = true
				}
			}
		}
	}

	var insns asm.Instructions
	for _, body := range bodies {
		if wanted[body[0].Symbol()] {
			insns = append(insns, body...)
		}
	}
	return insns
}

// functions splits a program. Each function begins with a symbol.
func functions(insns asm.Instructions) []asm.Instructions {
	var list []asm.Instructions
	start := 0
	for i := range insns {
		if i > start && insns[i].Symbol() != "" {
			list = append(list, insns[start:i])
			start = i
		}
	}
	return append(list, insns[start:])
}

// function is a function during folding. Until layout, jumps lead to indices of instructions.
type function struct {
	parameters map[string]int // number of parameters, by the name of a function
	constants  *ebpf.VariableSpec
	insns      []asm.Instruction
	behind     []int  // by index: the instruction that follows if this one does not jump
	targets    []int  // by index: where a jump leads to; -1 for other instructions
	aside      []bool // by index: the instruction marks its block as one that goes aside
	gone       []bool // by index: left out
}

func newFunction(body asm.Instructions, constants *ebpf.VariableSpec, parameters map[string]int) (*function, error) {
	f := &function{
		constants:  constants,
		parameters: parameters,
		insns:      append([]asm.Instruction(nil), body...),
		behind:     make([]int, len(body)),
		targets:    make([]int, len(body)),
		aside:      make([]bool, len(body)),
		gone:       make([]bool, len(body)),
	}

	offsets := make([]int, len(body)) // in words of 8 bytes
	byOffset := map[int]int{}
	next := 0
	for i := range body {
		offsets[i] = next
		byOffset[next] = i
		next += int(body[i].Width())
	}
	for i := range body {
		f.behind[i] = i + 1
		f.targets[i] = -1
		if !isJump(&body[i]) {
			continue
		}
		to, ok := byOffset[offsets[i]+1+insn.JumpWords(&body[i])]
		if !ok {
			return nil, fmt.Errorf("instruction %d, %v: the jump leads out of the function", i, body[i])
		}
		f.targets[i] = to
		f.aside[i] = to == i+1 && !isConditional(&body[i])
	}
	if last := &body[len(body)-1]; !isExit(last) && (!isJump(last) || isConditional(last)) {
		return nil, fmt.Errorf("instruction %d, %v: the function goes on behind it", len(body)-1, *last)
	}
	return f, nil
}

// isJump reports whether an instruction may go on elsewhere in its function.
func isJump(ins *asm.Instruction) bool {
	if !ins.OpCode.Class().IsJump() {
		return false
	}
	op := ins.OpCode.JumpOp()
	return op != asm.Call && op != asm.Exit
}

// isConditional reports whether a jump may also go on with the next instruction.
func isConditional(ins *asm.Instruction) bool { return isJump(ins) && ins.OpCode.JumpOp() != asm.Ja }

func isExit(ins *asm.Instruction) bool { return ins.OpCode.JumpOp() == asm.Exit }

func isCall(ins *asm.Instruction) bool { return ins.OpCode.JumpOp() == asm.Call }

// leaveOut leaves out an instruction. The first one stays: the symbol of the function is attached to it.
func (f *function) leaveOut(i int) { f.gone[i] = i != 0 }

// compact takes the instructions that are left out off the lists, so that later steps need not look at them. Indices change.
func (f *function) compact() {
	places := make([]int, len(f.insns)+1) // by old index; of an instruction that is left out, the place of the next one
	n := 0
	for i := range f.insns {
		places[i] = n
		if f.gone[i] {
			continue
		}
		f.insns[n] = f.insns[i]
		f.behind[n] = f.behind[i]
		f.targets[n] = f.targets[i]
		f.aside[n] = f.aside[i]
		n++
	}
	places[len(f.insns)] = n
	f.insns = f.insns[:n]
	f.behind = f.behind[:n]
	f.targets = f.targets[:n]
	f.aside = f.aside[:n]
	f.gone = make([]bool, n)

	for i, to := range f.targets {
		f.behind[i] = places[f.behind[i]]
		if to >= 0 {
			f.targets[i] = places[to]
		}
	}
}

// next returns the indices of the instructions that may follow one; -1 stands for none.
func (f *function) next(i int) (behind, target int) {
	ins := &f.insns[i]
	switch {
	case f.gone[i]:
		return f.behind[i], -1
	case isExit(ins):
		return -1, -1
	case isConditional(ins):
		return f.behind[i], f.targets[i]
	case isJump(ins):
		return -1, f.targets[i]
	}
	return f.behind[i], -1
}
