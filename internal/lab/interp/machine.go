package interp

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/flowtally/flowtally/internal/insn"
)

// Machine runs a program. It is not for concurrent use.
type Machine struct {
	Memory Memory

	insns  []asm.Instruction
	byRaw  map[int]int       // index of an instruction, by its offset in words of 8 bytes
	raw    []int             // and back
	values map[uint32]uint64 // address of a map's value, by the number in the instruction
	stack  uint64            // address of all frames
	cpu    uint64            // address of the number of the CPU, which is 0
}

// Counts are what one run has executed.
type Counts struct {
	Instructions int
	Calls        int // of functions of the program, and of the kernel
	Lines        int // distinct cache lines of the values of maps
}

// Limits of the kernel.
const (
	frames    = 8
	frameSize = 512
)

// mostSteps ends a program that does not.
const mostSteps = 1 << 20

// New returns a machine for a program. values has the values of its maps, by the number in the instructions. In instructions from
// the kernel, that is the ID of the map.
func New(insns asm.Instructions, values map[uint32][]byte) *Machine {
	m := &Machine{
		insns:  insns,
		byRaw:  map[int]int{},
		values: map[uint32]uint64{},
	}
	offset := 0
	for i := range insns {
		m.byRaw[offset] = i
		m.raw = append(m.raw, offset)
		offset += int(insns[i].Width())
	}
	m.stack = m.Memory.Map("the stack", make([]byte, frames*frameSize))
	m.cpu = m.Memory.Map("the number of the CPU", make([]byte, 8))
	for number, value := range values {
		m.values[number] = m.Memory.add(fmt.Sprintf("map %d", number), value, true)
	}
	return m
}

// Loaded returns a machine for a program in the kernel. It copies the program's arrays of one element, such as sections of data,
// as they are now. A per-CPU array of one element has the value 0. The machine lacks all other maps.
func Loaded(p *ebpf.Program) (*Machine, error) {
	info, err := p.Info()
	if err != nil {
		return nil, fmt.Errorf("reading the instructions of a program: %w", err)
	}
	insns, err := info.Instructions()
	if err != nil {
		return nil, fmt.Errorf("reading the instructions of a program: %w", err)
	}

	values := map[uint32][]byte{}
	perCPU := map[uint32]int{} // size of the value
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return nil, fmt.Errorf("opening map %d: %w", id, err)
		}
		switch {
		case m.MaxEntries() != 1:
		case m.Type() == ebpf.PerCPUArray:
			perCPU[uint32(id)] = int(m.ValueSize())
		case m.Type() == ebpf.Array:
			values[uint32(id)], err = m.LookupBytes(uint32(0))
		}
		m.Close()
		if err != nil {
			return nil, fmt.Errorf("reading map %d: %w", id, err)
		}
	}

	machine := New(insns, values)
	for id, size := range perCPU {
		machine.addPerCPU(id, size)
	}
	return machine, nil
}

// addPerCPU adds a per-CPU array of one element. The kernel writes the lookup into the program: it loads the address of the value
// from the struct bpf_array. Here every word of that struct is the address.
func (m *Machine) addPerCPU(number uint32, size int) {
	value := m.Memory.add(fmt.Sprintf("value of map %d", number), make([]byte, size), true)
	array := make([]byte, 1024)
	for i := 0; i < len(array); i += 8 {
		binary.NativeEndian.PutUint64(array[i:], value)
	}
	m.values[number] = m.Memory.Map(fmt.Sprintf("struct bpf_array of map %d", number), array)
}

// Packet makes a frame the packet of the next runs of a program of XDP. It returns the address of their context, which is a struct
// xdp_buff (net/xdp.h of the kernel): the kernel's instructions do not have the struct xdp_md of the source.
func (m *Machine) Packet(frame []byte) (context uint64) {
	data := m.Memory.Map("the packet", frame)
	buff := make([]byte, 64)
	binary.NativeEndian.PutUint64(buff, data)
	binary.NativeEndian.PutUint64(buff[8:], data+uint64(len(frame)))
	return m.Memory.Map("struct xdp_buff", buff)
}

// run is a run under way.
type run struct {
	*Machine
	at      int        // index of the next instruction
	reg     [12]uint64 // R11 is the kernel's own
	callers []caller
	counts  Counts
	lines   map[uint64]bool
}

// caller is where a function returns to, and the registers that it preserves.
type caller struct {
	at    int
	saved [5]uint64 // R6 to R10
}

var errUnknown = errors.New("the machine does not know the instruction")

// Run runs the program with an address as its context. It returns R0.
func (m *Machine) Run(context uint64) (uint64, Counts, error) {
	r := &run{Machine: m, lines: map[uint64]bool{}}
	r.reg[asm.R1] = context
	r.reg[asm.RFP] = m.stack + frameSize

	for r.counts.Instructions < mostSteps {
		ins := &m.insns[r.at]
		r.counts.Instructions++
		done, err := r.step(ins)
		if err != nil {
			return 0, r.counts, fmt.Errorf("instruction %d, %v: %w", m.raw[r.at], *ins, err)
		}
		if done {
			r.counts.Lines = len(r.lines)
			return r.reg[asm.R0], r.counts, nil
		}
	}
	return 0, r.counts, fmt.Errorf("running the program: no end after %d instructions", mostSteps)
}

// step executes one instruction, and reports whether it was the program's last.
func (r *run) step(ins *asm.Instruction) (done bool, err error) {
	next := r.at + 1
	switch class := ins.OpCode.Class(); {
	case ins.OpCode.IsDWordLoad():
		err = r.loadImmediate(ins)
	case class == asm.LdXClass:
		err = r.load(ins)
	case class.IsStore():
		err = r.store(ins)
	case class.IsALU():
		err = r.compute(ins)
	case ins.OpCode.JumpOp() == asm.Exit:
		next, done = r.leave()
	case ins.OpCode.JumpOp() == asm.Call:
		next, err = r.call(ins)
	case class.IsJump():
		next, err = r.jump(ins)
	default:
		err = errUnknown
	}
	if err == nil {
		r.at = next
	}
	return done, err
}

// target returns the index of the instruction that a jump of so many words leads to.
func (r *run) target(words int64) (int, error) {
	i, ok := r.byRaw[r.raw[r.at]+1+int(words)]
	if !ok {
		return 0, fmt.Errorf("jumping by %d words: no instruction begins there", words)
	}
	return i, nil
}

func (r *run) loadImmediate(ins *asm.Instruction) error {
	if !ins.IsLoadFromMap() {
		r.reg[ins.Dst] = uint64(ins.Constant)
		return nil
	}
	number, offset := uint32(ins.Constant), uint64(ins.Constant)>>32 // 0 for the map itself
	value, ok := r.values[number]
	if !ok {
		return fmt.Errorf("taking the address of map %d, which the machine lacks", number)
	}
	r.reg[ins.Dst] = value + offset
	return nil
}

// access returns the memory at an address, and notes its cache lines.
func (r *run) access(addr uint64, size asm.Size) ([]byte, error) {
	b, in, err := r.Memory.at(addr, size.Sizeof())
	if err != nil {
		return nil, err
	}
	if in.lines {
		r.lines[addr/lineSize] = true
		r.lines[(addr+uint64(len(b))-1)/lineSize] = true
	}
	return b, nil
}

func (r *run) load(ins *asm.Instruction) error {
	if ins.OpCode.Mode() != asm.MemMode {
		return errUnknown
	}
	b, err := r.access(r.reg[ins.Src]+uint64(int64(ins.Offset)), ins.OpCode.Size())
	if err != nil {
		return err
	}
	r.reg[ins.Dst] = insn.Load(b)
	return nil
}

func (r *run) store(ins *asm.Instruction) error {
	b, err := r.access(r.reg[ins.Dst]+uint64(int64(ins.Offset)), ins.OpCode.Size())
	if err != nil {
		return err
	}
	switch {
	case ins.OpCode.Class() == asm.StClass:
		storeUint(b, uint64(ins.Constant))
	case ins.OpCode.Mode() == asm.MemMode:
		storeUint(b, r.reg[ins.Src])
	case ins.OpCode.AtomicOp() == asm.AddAtomic:
		storeUint(b, insn.Load(b)+r.reg[ins.Src])
	case ins.OpCode.AtomicOp() == asm.FetchAdd:
		old := insn.Load(b)
		storeUint(b, old+r.reg[ins.Src])
		r.reg[ins.Src] = old
	default:
		return errUnknown
	}
	return nil
}

// operand returns the second operand of a computation or a comparison.
func (r *run) operand(ins *asm.Instruction) uint64 {
	if ins.OpCode.Source() == asm.RegSource {
		return r.reg[ins.Src]
	}
	return uint64(ins.Constant)
}

// percpuMove is the Offset of a move that turns a per-CPU address into that of this CPU (BPF_ADDR_PERCPU of linux/filter.h). The
// kernel puts it in the place of a call to bpf_get_smp_processor_id.
const percpuMove = -1

// ofThisCPU returns the address of this CPU for a per-CPU address. Of that, the machine has the values of arrays, and otherwise the
// number of the CPU alone.
func (r *run) ofThisCPU(addr uint64) uint64 {
	if _, _, err := r.Memory.at(addr, 1); err == nil {
		return addr
	}
	return r.cpu
}

func (r *run) compute(ins *asm.Instruction) error {
	if ins.OpCode.ALUOp() == asm.Mov && ins.OpCode.Source() == asm.RegSource && ins.Offset != 0 {
		if ins.Offset != percpuMove {
			return errUnknown
		}
		r.reg[ins.Dst] = r.ofThisCPU(r.reg[ins.Src])
		return nil
	}

	v, ok := insn.Compute(ins.OpCode, r.reg[ins.Dst], r.operand(ins))
	if !ok {
		return errUnknown
	}
	r.reg[ins.Dst] = v
	return nil
}

func (r *run) jump(ins *asm.Instruction) (int, error) {
	if ins.OpCode.JumpOp() == asm.Ja {
		return r.target(int64(insn.JumpWords(ins)))
	}
	taken, ok := insn.IsTaken(ins.OpCode, r.reg[ins.Dst], r.operand(ins))
	if !ok {
		return 0, errUnknown
	}
	if !taken {
		return r.at + 1, nil
	}
	return r.target(int64(ins.Offset))
}

// call enters a function of the program.
func (r *run) call(ins *asm.Instruction) (int, error) {
	r.counts.Calls++
	if !ins.IsFunctionCall() {
		return 0, errors.New("calling the kernel, which the machine lacks")
	}
	if len(r.callers) == frames-1 {
		return 0, fmt.Errorf("calling a function: more than %d frames", frames)
	}
	words := ins.Constant
	if ins.Offset != 0 {
		words = int64(ins.Offset) // of a program that is compiled to machine code (bpf_insn_prepare_dump)
	}
	next, err := r.target(words)
	if err != nil {
		return 0, err
	}
	r.callers = append(r.callers, caller{r.at + 1, [5]uint64(r.reg[asm.R6:])})
	r.reg[asm.RFP] += frameSize
	return next, nil
}

// leave returns from a function. It reports whether that ends the program.
func (r *run) leave() (next int, done bool) {
	n := len(r.callers)
	if n == 0 {
		return 0, true
	}
	last := r.callers[n-1]
	r.callers = r.callers[:n-1]
	copy(r.reg[asm.R6:], last.saved[:])
	return last.at, false
}
