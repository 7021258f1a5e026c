package xdp

import (
	"context"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/times"
)

// behind counts the packets of UDP that pass the ingress of an end, behind every other program of TCX.
func behind(t testing.TB, e *lab.End) (passed func() uint64) {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "behind", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, 16, asm.Word), // protocol
		asm.JNE.Imm(asm.R6, int32(swap16(0x800)), "out"),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("out"), // TCX_NEXT
		asm.Return(),
	}})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer p.Close()
	err = e.NS.Do(func() error {
		l, err := link.AttachTCX(link.TCXOptions{Program: p, Interface: e.Index, Attach: ebpf.AttachTCXIngress, Anchor: link.Tail()})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() (sum uint64) {
		var all []uint64
		if err := m.Lookup(uint32(0), &all); err != nil {
			t.Fatal(err)
		}
		for _, v := range all {
			sum += v
		}
		return sum
	}
}

// TestMovesUnderTraffic moves an interface between TCX and XDP while packets flow, ten times each way. Each packet
// that reaches the stack is counted once. A program behind all others says how many those are: a veth drops packets
// when XDP comes or goes.
func TestMovesUnderTraffic(t *testing.T) {
	const flows = 4
	for mode, name := range map[Mode]string{ModeNative: "native", ModeGeneric: "generic"} {
		t.Run(name, func(t *testing.T) {
			w := testWire(t)
			rs := openTest(t, Options{MaxRules: 1024, PinDir: pinDir(t)})
			ids := floodRules(t, rs, flows)
			passed := behind(t, w.Near)
			attach(t, rs, w.Near, AttachOptions{Mode: ModeTCX, Ingress: true})
			s := flood(t, w.Far, flows, 100, lab.SenderOptions{})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx, 1<<40) }()
			counted := func() (sum Pair) {
				got := make([]Pair, len(ids))
				if err := rs.Read(ids, got); err != nil {
					t.Fatal(err)
				}
				for _, p := range got {
					sum.Packets += p.Packets
					sum.Bytes += p.Bytes
				}
				return sum
			}
			for range times.Brief(10, 3) {
				for _, to := range []Mode{mode, ModeTCX} {
					was := counted().Packets
					got := attach(t, rs, w.Near, AttachOptions{Mode: to, Ingress: true})
					if want := modes(HookIngress, to, false)[0]; got[0].Mode != want || got[0].Fresh {
						t.Fatalf("moving to %s: got %+v", want, got[0])
					}
					lab.Eventually(t, "packets between two moves", func() bool { return counted().Packets > was+1000 })
				}
			}
			stop()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if err := s.Drain(t.Context()); err != nil {
				t.Logf("packets were dropped by the veth: %v", err)
			}
			lab.Eventually(t, fmt.Sprintf("every packet that passed counted once: %d passed, %d counted", passed(), counted().Packets), func() bool {
				return counted() == Pair{passed(), 100 * passed()}
			})
			t.Logf("%d packets over the moves, each counted once", passed())
		})
	}
}
