//go:build releases

package rdmacore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/fence"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// TestKernelSwitchdevIsDecidedBySelftest types the commands of docs/rdma.md for the owner of a NIC in switchdev mode, on a
// representor, which sysfs alone names: an uplink is known by devlink, which not every kernel has. A pair of veths is the
// slow path between a function and its representor.
func TestKernelSwitchdevIsDecidedBySelftest(t *testing.T) {
	need.Root(t)
	need.BPF(t)
	need.TCX(t)
	need.Tool(t, "bash", "env", "chroot", "sh")
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "rdma.md"))
	if err != nil {
		t.Fatal(err)
	}
	fences, _ := fence.Parse(string(text)) // TestFencesSayHowTheyRun reports its mistakes
	for _, suite := range []string{Suites()[0], Suites()[2]} {
		t.Run(suite, func(t *testing.T) {
			root := release(t, suite).NewRoot(t)
			h := newHost(t, root, "mlx5_0", "eth0r", "")
			pair, err := lab.NewPair(h.near, h.near, "eth0r", "eth0v0", lab.PairOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { pair.Close() })
			netdev := pciPath(0) + "/net/eth0r/"
			if err := root.write(map[string]string{netdev + "phys_switch_id": "e41d2d0003a1b2c4\n", netdev + "phys_port_name": "pf0vf0\n"}); err != nil {
				t.Fatal(err)
			}

			ran := 0
			for _, f := range fences {
				_, of, named := strings.Cut(f.NotRun, "TestKernelSwitchdevIsDecidedBySelftest runs it")
				if !named {
					continue
				}
				if of == " with the rule" {
					forward(t, pair.B)
				}
				h.walk(t, f)
				ran++
			}
			if ran < 3 {
				t.Errorf("docs/rdma.md has %d fences for it", ran)
			}
		})
	}
}

// forward drops the frames of EtherType 0x88b6 behind the function, in place of a rule that forwards them in hardware.
func forward(t *testing.T, function *lab.End) {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R1, asm.R1, 16, asm.Word), // protocol of struct __sk_buff
		asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.Mov.Imm(asm.R0, -1), // TCX_NEXT
		asm.JNE.Imm(asm.R1, 0x88b6, "out"),
		asm.Mov.Imm(asm.R0, 2), // TCX_DROP
		asm.Return().WithSymbol("out"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	err = function.NS.Do(func() error {
		l, err := link.AttachTCX(link.TCXOptions{Interface: function.Index, Program: p, Attach: ebpf.AttachTCXEgress})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
