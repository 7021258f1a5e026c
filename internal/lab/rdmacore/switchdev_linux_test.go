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

	"github.com/flowtally/flowtally/ibv/ibvtest"
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
	need.Tool(t, "bash", "env", "chroot", "sh")
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "rdma.md"))
	if err != nil {
		t.Fatal(err)
	}
	fences, _ := fence.Parse(string(text)) // TestFencesSayHowTheyRun reports its mistakes
	for _, suite := range []string{Suites()[0], Suites()[2]} {
		for words, c := range map[string]struct {
			mutant string
			rule   bool // the e-switch forwards past the host
		}{
			"":                                  {},
			" with the rule":                    {rule: true},
			" over a device that loses a frame": {rule: true, mutant: "loses_sent"},
		} {
			t.Run(suite+words, func(t *testing.T) {
				root := release(t, suite).NewRoot(t)
				h := newHost(t, root, "mlx5_0", "eth0r", ibvtest.Env{Mutant: c.mutant})
				pair, err := lab.NewPair(h.near, h.near, "eth0r", "eth0v0", lab.PairOptions{})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { pair.Close() })
				netdev := pciPath(0) + "/net/eth0r/"
				if err := root.write(map[string]string{netdev + "phys_switch_id": "e41d2d0003a1b2c4\n", netdev + "phys_port_name": "pf0vf0\n"}); err != nil {
					t.Fatal(err)
				}
				if c.rule {
					forward(t, pair.A)
				}

				ran := 0
				for _, f := range fences {
					if _, of, named := strings.Cut(f.NotRun, "TestKernelSwitchdevIsDecidedBySelftest runs it"); named && of == words {
						h.walk(t, f)
						ran++
					}
				}
				if ran != 1 {
					t.Errorf("docs/rdma.md has %d fences for it%s, want 1", ran, words)
				}
			})
		}
	}
}

// forward drops the frames of EtherType 0x88b6 before the representor has them, in place of a rule that forwards them in
// hardware.
func forward(t *testing.T, rep *lab.End) {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // data of struct xdp_md
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word), // data_end
		asm.Mov.Imm(asm.R0, 2),                   // XDP_PASS
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, 14),
		asm.JGT.Reg(asm.R4, asm.R3, "out"),
		asm.LoadMem(asm.R1, asm.R2, 12, asm.Half),
		asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.JNE.Imm(asm.R1, 0x88b6, "out"),
		asm.Mov.Imm(asm.R0, 1), // XDP_DROP
		asm.Return().WithSymbol("out"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	err = rep.NS.Do(func() error {
		l, err := link.AttachXDP(link.XDPOptions{Interface: rep.Index, Program: p, Flags: link.XDPGenericMode})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
