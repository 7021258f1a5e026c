package xdp

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/xdp/members"
)

// harmless lists the kernel functions that a program of flowtally may call. Each has the reason why it cannot alter a
// packet, its buffer or its metadata. Newer kernels inline the first two.
var harmless = map[string]string{
	"bpf_get_smp_processor_id":     "takes no packet",
	"percpu_array_map_lookup_elem": "takes no packet: the lookup of the map of copies",
	"bpf_skb_load_bytes":           "copies from the buffer to memory of the program",
	"bpf_skb_load_bytes_relative":  "copies from the linear part to memory of the program",
	"bpf_xdp_load_bytes":           "copies from the buffers of the frame to memory of the program",
	"bpf_xdp_get_buff_len":         "adds the lengths of the buffers",
}

func kallsyms(t *testing.T) *lab.Kallsyms {
	t.Helper()

	k, err := lab.ReadKallsyms()
	if errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist) {
		need.Missing(t, "kallsyms", err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// callsOf returns the calls of a loaded program, and the calls outside harmless.
func callsOf(t *testing.T, k *lab.Kallsyms, p *ebpf.Program) (calls, bad []string) {
	t.Helper()

	calls, err := k.Calls(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range calls {
		if harmless[name] == "" {
			bad = append(bad, name)
		}
	}
	return calls, bad
}

// everyLayer returns rules on every layer, some of them in trees.
func everyLayer(counter uint32) []Rule {
	var rules []Rule
	for i := range 60 {
		r := Rule{Counter: counter, Order: uint32(i)}
		for w := range r.Mask.words() {
			r.Mask.words()[w] = ^uint64(i / 2)
		}
		r.Mask.Out.Proto, r.Mask.Out.L4 = 0, [4]byte{} // a packet of any tunnel
		askNothing(&r.Mask)
		r.Key.words()[0] = uint64(i&1) << 63
		rules = append(rules, r)
	}
	return rules
}

// Disassemble every program as the kernel runs it, for each kind of rules and of hook.
func TestProgramsCallOnlyHarmlessFunctions(t *testing.T) {
	sets := []struct {
		name  string
		rules func(dp *Datapath, counter uint32) []Rule
	}{
		{"no flow", func(*Datapath, uint32) []Rule { return nil }},
		{"one flow", func(_ *Datapath, counter uint32) []Rule { return []Rule{exact4(1, 2, 3, 4, counter)} }},
		{"every layer", func(_ *Datapath, counter uint32) []Rule { return everyLayer(counter) }},
		{"sets", func(dp *Datapath, counter uint32) (rules []Rule) {
			mustOpen(t, dp, SetSpec{Name: "a", Room: members.Shape{IPv4: 10, IPv6: 10}})
			for i := range 8 {
				r := Rule{Counter: counter, Order: uint32(i)}
				mustAsk(t, dp, "a", Field{Inner: i&1 != 0, Destination: i&2 != 0, IPv6: i&4 != 0}).Condition(&r, true)
				rules = append(rules, r)
			}
			return rules
		}},
	}
	programs := []string{
		flowtallyProgFlowtallyXdp61,
		flowtallyProgFlowtallyTcxNobtf,
		flowtallyProgFlowtallyXdp61Sets,
		flowtallyProgFlowtallyTcxNobtfSets,
		flowtallyProgFlowtallyXdp,
		flowtallyProgFlowtallyXdpOne,
		flowtallyProgFlowtallyXdpSets,
		flowtallyProgFlowtallyTcx,
		flowtallyProgFlowtallyTcxSets,
	}
	if spec, err := loadFlowtally(); err != nil || len(spec.Programs) != len(programs) {
		t.Fatalf("the object has programs that this test does not load: %v, %v", spec, err)
	}
	if !seesContext() {
		programs = programs[:4] // the others do not load here
	}

	places := []site{
		{hookKey: hookKey{1, HookIngress}},
		{hookKey: hookKey{1, HookEgress}},
		{hookKey: hookKey{1, HookIngress}, layer3: true},
		{hookKey: hookKey{1, HookEgress}, layer3: true},
		{hookKey: hookKey{1, HookIngress}, generic: true},
	}
	if features.HaveProgramType(ebpf.Extension) == nil { // as the machines of internal/lab/vm do
		places = append(places, site{hookKey: hookKey{1, HookIngress}, component: true})
	}

	symbols := kallsyms(t)
	called := map[string]bool{}
	for _, set := range sets {
		dp := openTest(t, Options{MaxRules: 1024})
		mustAdd(t, dp, set.rules(dp, mustCounter(t, dp, "a"))...)

		for _, name := range programs {
			tcx := strings.Contains(name, "tcx")
			for _, at := range places {
				if tcx && (at.generic || at.component) {
					continue
				}

				at.tcx = tcx
				p, err := dp.loader.loadNamed(dp.constants, at, name)
				if err != nil {
					t.Fatalf("%s, %s, %+v: %+v", set.name, name, at, err)
				}
				calls, bad := callsOf(t, symbols, p)
				p.Close()

				if len(bad) > 0 {
					t.Errorf("%s, %s, %+v: calls %v", set.name, name, at, bad)
				}
				for _, c := range calls {
					called[c] = true
				}
			}
		}
	}
	if !called["bpf_skb_load_bytes"] || !called["bpf_xdp_load_bytes"] {
		t.Errorf("calls %v: the test does not see the copies of headers, so it sees no other call either", called)
	}
	t.Logf("called: %v", called)
}

// The check for harmless functions must find programs that alter packets: one pulls data, as our TCX program once did, one stores to
// the packet, and one reserves metadata.
func TestAlteringProgramsAreSeen(t *testing.T) {
	need.BPF(t)
	symbols := kallsyms(t)

	pull := asm.Instructions{
		asm.Mov.Imm(asm.R2, 512),
		asm.FnSkbPullData.Call(),
		asm.Mov.Imm(asm.R0, -1),
		asm.Return(),
	}
	store := asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 76, asm.Word), // data
		asm.LoadMem(asm.R3, asm.R1, 80, asm.Word), // data_end
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, 14),
		asm.JGT.Reg(asm.R4, asm.R3, "out"),
		asm.StoreImm(asm.R2, 0, 0, asm.Byte),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("out"),
		asm.Return(),
	}
	adjust := asm.Instructions{
		asm.Mov.Imm(asm.R2, -8),
		asm.FnXdpAdjustMeta.Call(),
		asm.Mov.Imm(asm.R0, verdictPass),
		asm.Return(),
	}
	for _, c := range []struct {
		name string
		typ  ebpf.ProgramType
		code asm.Instructions
		want string
	}{
		{"pull", ebpf.SchedCLS, pull, "bpf_skb_pull_data"},
		{"store", ebpf.SchedCLS, store, "bpf_skb_pull_data"},
		{"adjust", ebpf.XDP, adjust, "bpf_xdp_adjust_meta"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: c.typ, License: "GPL", Instructions: c.code})
			if err != nil {
				t.Fatalf("%+v", err)
			}
			defer p.Close()

			if _, bad := callsOf(t, symbols, p); !slices.Contains(bad, c.want) {
				t.Errorf("found %v, want %s", bad, c.want)
			}
		})
	}
}
