package dispatcher

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// name is the name of every dispatcher. libxdp recognizes a dispatcher by it.
const name = "xdp_dispatcher"

const verdictPass = 2

// readOnlyProgram is BPF_F_RDONLY_PROG, which x/sys defines on Linux only.
const readOnlyProgram = 1 << 7

// place returns the name of the function replaced by component i.
func place(i int) string { return fmt.Sprintf("prog%d", i) }

// load loads a dispatcher with one place for each component.
func load(c *config) (*ebpf.Program, error) {
	value := c.encode()
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name:       "xdp_disp_rodata",
		Type:       ebpf.Array,
		KeySize:    4,
		ValueSize:  uint32(len(value)),
		MaxEntries: 1,
		Flags:      readOnlyProgram,
		Contents:   []ebpf.MapKV{{Key: uint32(0), Value: value}},
	})
	if err != nil {
		return nil, fmt.Errorf("making the configuration of a dispatcher: %w", err)
	}
	defer m.Close()
	if err := m.Freeze(); err != nil {
		return nil, fmt.Errorf("freezing the configuration of a dispatcher: %w", err)
	}

	spec := &ebpf.ProgramSpec{
		Name:         name,
		Type:         ebpf.XDP,
		AttachType:   ebpf.AttachXDP,
		License:      "GPL",
		Instructions: instructions(c, m.FD()),
	}
	if c.Frags != 0 {
		spec.Flags = hasFrags
	}
	p, err := ebpf.NewProgram(spec)
	if err != nil {
		return nil, fmt.Errorf("loading a dispatcher: %w", err)
	}
	return p, nil
}

// instructions returns the code of a dispatcher. Its places are global functions, because the kernel lets extensions replace those.
func instructions(c *config, configuration int) asm.Instructions {
	one := &btf.Int{Name: "unsigned int", Size: 4}
	fields := []string{"data", "data_end", "data_meta", "ingress_ifindex", "rx_queue_index", "egress_ifindex"}
	md := &btf.Struct{Name: "xdp_md", Size: uint32(4 * len(fields))}
	for i, f := range fields {
		md.Members = append(md.Members, btf.Member{Name: f, Type: one, Offset: btf.Bits(32 * i)})
	}
	proto := &btf.FuncProto{
		Return: &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed},
		Params: []btf.FuncParam{{Name: "ctx", Type: &btf.Pointer{Target: md}}},
	}
	function := func(name string, first asm.Instruction) asm.Instruction {
		return btf.WithFuncMetadata(first.WithSymbol(name), &btf.Func{Name: name, Type: proto, Linkage: btf.GlobalFunc})
	}
	code := asm.Instructions{
		function(name, asm.Mov.Reg(asm.R6, asm.R1)),
		asm.LoadMapValue(asm.R1, configuration, 0), // unused, but it ties the map to the program
	}
	for i := range int(c.Programs) {
		code = append(code,
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.Call.Label(place(i)),
			asm.Mov.Imm32(asm.R1, 1),
			asm.LSh.Reg32(asm.R1, asm.R0),
			asm.And.Imm32(asm.R1, int32(c.Actions[i])),
			asm.JEq.Imm(asm.R1, 0, "out"),
		)
	}
	code = append(code, asm.Mov.Imm(asm.R0, verdictPass), asm.Return().WithSymbol("out"))
	for i := range int(c.Programs) {
		// A component may change packets only if the function it replaces may change them. So each place calls a helper that
		// changes packets, on a branch for a NULL context. No packet takes that branch, but the verifier does not know.
		empty := place(i) + "_empty"
		code = append(code,
			function(place(i), asm.JNE.Imm(asm.R1, 0, empty)),
			asm.Mov.Imm(asm.R2, 0),
			asm.FnXdpAdjustTail.Call(),
			asm.Mov.Imm(asm.R0, goesOn).WithSymbol(empty),
			asm.Return(),
		)
	}
	return code
}

// Mould loads a dispatcher with a single place, named Place. To load a component, the verifier needs a function that the component is
// to replace. Give it this one. The component can then be attached to any place of any dispatcher.
func Mould() (*ebpf.Program, error) {
	return load(configOf(oldVersion, make([]member, 1)))
}

// Place is the name of the function to replace in a mould.
const Place = "prog0"
