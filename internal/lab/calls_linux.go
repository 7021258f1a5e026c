package lab

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Kallsyms are the kernel's functions by their addresses.
type Kallsyms struct {
	nameAt map[uint64]string
	base   uint64 // the address of __bpf_call_base: the kernel counts the calls of programs from it
}

// ReadKallsyms reads /proc/kallsyms. Without the privilege to see addresses the error is os.ErrPermission.
func ReadKallsyms() (*Kallsyms, error) {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil, fmt.Errorf("reading the kernel's symbols: %w", err)
	}
	defer f.Close()

	k := &Kallsyms{nameAt: map[uint64]string{}}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text()) // ffffffff81000000 T name [module]
		if len(fields) < 3 {
			continue
		}

		at, err := strconv.ParseUint(fields[0], 16, 64)
		if err != nil {
			return nil, fmt.Errorf("reading the kernel's symbols: %w", err)
		}
		k.nameAt[at] = fields[2]
		if fields[2] == "__bpf_call_base" {
			k.base = at
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading the kernel's symbols: %w", err)
	}
	if k.base == 0 {
		return nil, fmt.Errorf("reading the kernel's symbols: no address of __bpf_call_base: %w", os.ErrPermission)
	}
	return k, nil
}

// Calls returns the kernel functions called by a loaded program, sorted and each once. It reads the instructions of the
// kernel's copy (kernel/bpf/syscall.c, bpf_insn_prepare_dump). So it also sees calls added by the verifier: a program that
// stores to a socket buffer begins with bpf_skb_pull_data.
func (k *Kallsyms) Calls(p *ebpf.Program) ([]string, error) {
	info, err := p.Info()
	if err != nil {
		return nil, fmt.Errorf("asking for the program: %w", err)
	}
	code, err := info.Instructions()
	if err != nil {
		return nil, fmt.Errorf("reading the instructions of %s: %w", info.Name, err)
	}

	var names []string
	for _, ins := range code {
		if ins.OpCode.JumpOp() != asm.Call || ins.Src == asm.PseudoCall {
			continue
		}

		name := k.nameAt[k.base+uint64(ins.Constant)]
		if name == "" {
			name = fmt.Sprintf("the function at __bpf_call_base%+d", ins.Constant)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
