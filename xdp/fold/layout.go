package fold

import (
	"math"

	"github.com/cilium/ebpf/asm"
)

// layout returns the remaining instructions. To need few jumps, it puts an instruction directly behind one that leads to it, where
// it can. What goes aside is behind everything else. The first instruction stays the first.
func (f *function) layout() (asm.Instructions, error) {
	l := arrangement{places: map[int]int{}}
	var last []int
	for starts := []int{0}; len(starts) > 0; {
		start := starts[0]
		starts = starts[1:]
		if !l.has(f.skip(start)) {
			for _, target := range f.chain(&l, f.skip(start)) {
				if f.isAside(target) {
					last = append(last, target)
				} else {
					starts = append(starts, target)
				}
			}
		}
		if len(starts) == 0 {
			starts, last = last, nil
		}
	}
	return l.out, l.resolve()
}

// arrangement is the new order of instructions.
type arrangement struct {
	out     asm.Instructions
	targets []int       // by place in out: the old index of a jump's target, or -1
	places  map[int]int // place in out, by old index
}

func (l *arrangement) has(i int) bool {
	_, done := l.places[i]
	return done
}

func (l *arrangement) add(ins asm.Instruction, target int) {
	l.out = append(l.out, ins)
	l.targets = append(l.targets, target)
}

// chain arranges the instructions that follow one another from start on, until the function ends or goes on with one that has its
// place already. It returns where the conditional jumps among them lead, with what is to be skipped there.
func (f *function) chain(l *arrangement, start int) (targets []int) {
	for i := start; ; {
		if l.has(i) && isExit(&f.insns[i]) {
			l.add(f.insns[i], -1) // shorter than the way to it
			return targets
		}
		if l.has(i) {
			l.add(jumpAlways, i)
			return targets
		}

		l.places[i] = len(l.out)
		ins := &f.insns[i]
		if isExit(ins) {
			l.add(*ins, -1)
			return targets
		}
		if isJump(ins) && !isConditional(ins) { // the first instruction of the function: skip passes any other
			l.add(*ins, f.skip(f.targets[i]))
			return append(targets, f.targets[i])
		}
		if !isConditional(ins) {
			l.add(*ins, -1)
			i = f.skip(f.behind[i])
			continue
		}

		if l.has(f.skip(f.behind[i])) && !l.has(f.skip(f.targets[i])) {
			f.invert(i)
		}
		next, target := f.skip(f.behind[i]), f.skip(f.targets[i])
		if target != next || i == 0 { // a jump to the next instruction does nothing, but the first has the symbol
			l.add(*ins, target)
		}
		targets = append(targets, f.targets[i])
		i = next
	}
}

// skip returns the first instruction from i on that does more than lead to another one.
func (f *function) skip(i int) int {
	for {
		next, ok := f.onward(i)
		if !ok {
			return i
		}
		i = next
	}
}

// onward returns where an instruction leads that does nothing else: one that is left out, or an unconditional jump.
func (f *function) onward(i int) (next int, ok bool) {
	switch {
	case f.gone[i]:
		return f.behind[i], true
	case isJump(&f.insns[i]) && !isConditional(&f.insns[i]):
		return f.targets[i], true
	}
	return i, false
}

// hasEmptyLoop reports whether the function has a loop in which nothing is left but its jump. Then skip would not end.
func (f *function) hasEmptyLoop() bool {
	for start := range f.insns {
		i, ok := start, true
		for steps := 0; ok && i < len(f.insns); steps++ { // at the end may be instructions that no way leads to
			if steps > len(f.insns) {
				return true
			}
			i, ok = f.onward(i)
		}
	}
	return false
}

// resolve writes the distances of all jumps.
func (l *arrangement) resolve() error {
	offsets := make([]int, len(l.out)+1) // in words of 8 bytes
	for i := range l.out {
		offsets[i+1] = offsets[i] + int(l.out[i].Width())
	}
	for i, target := range l.targets {
		if target < 0 {
			continue
		}
		distance := offsets[l.places[target]] - offsets[i+1]
		if distance < math.MinInt16 || distance > math.MaxInt16 {
			return errTooFar
		}
		l.out[i].Offset = int16(distance)
	}
	return nil
}
