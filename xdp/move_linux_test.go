package xdp

import (
	"context"
	"errors"
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

// moveUnderTraffic moves an interface to a mode while packets flow, and returns when the last packet has arrived.
func moveUnderTraffic(t *testing.T, dp *Datapath, e *lab.End, s *lab.Sender, mode string, o AttachOptions) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, 0) }()

	awaitMore := func() {
		t.Helper()
		was := s.Sent()[0].Packets
		lab.Eventually(t, "packets before and after a move", func() bool { return s.Sent()[0].Packets > was+100 })
	}
	awaitMore()
	was := dp.Now()
	if a := attach(t, dp, e, o)[0]; a.Mode != mode || a.Fresh {
		t.Fatalf("moving to %s: got %+v", mode, a)
	}
	if last, _ := dp.Lost(e.Name, HookIngress); !last.After(was) {
		t.Errorf("moving to %s is no outage", mode)
	}
	awaitMore()

	stop()
	if err := errors.Join(<-done, s.Settle(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// movesUnderTraffic moves an interface from TCX to a mode of XDP and back, several times. It calls check after each move.
func movesUnderTraffic(t *testing.T, dp *Datapath, e *lab.End, s *lab.Sender, mode Mode, check func(to string)) {
	t.Helper()
	attach(t, dp, e, AttachOptions{Mode: ModeTCX, Ingress: true})
	for range times.Brief(10, 3) {
		for _, to := range []Mode{mode, ModeTCX} {
			name := modes(HookIngress, to, false)[0]
			moveUnderTraffic(t, dp, e, s, name, AttachOptions{Mode: to, Ingress: true})
			check(name)
		}
	}
}

// An interface moves between TCX and XDP under traffic. During a move, a packet may count twice, and between moves each counts once.
// The reference is a program after all others, because a veth drops packets when XDP is attached or detached.
func TestMovesMissNoPacket(t *testing.T) {
	const flows = 4
	for mode, name := range map[Mode]string{ModeNative: modeNative, ModeGeneric: modeGeneric} {
		t.Run(name, func(t *testing.T) {
			w := testWire(t)
			dp := openTest(t, Options{MaxRules: 1024, PinDir: pinDir(t)})
			ids := floodRules(t, dp, flows)
			passed := behind(t, w.Near)
			s := flood(t, w.Far, flows, 100, lab.SenderOptions{})
			all := func() (n uint64) {
				for _, id := range ids {
					n += readOne(t, dp, id).Packets
				}
				return n
			}

			var twice uint64 // packets that the moves have counted twice
			movesUnderTraffic(t, dp, w.Near, s, mode, func(to string) {
				if counted, passed := all(), passed(); counted < passed+twice {
					t.Errorf("moved to %s: %d packets passed, %d of them counted", to, passed, counted-twice)
				} else {
					twice = counted - passed
				}

				was := s.Sent()
				before := make([]Pair, flows)
				for i, id := range ids {
					before[i] = readOne(t, dp, id)
				}
				if err := errors.Join(s.Run(t.Context(), 4000), s.Settle(t.Context())); err != nil {
					t.Fatal(err)
				}

				for i, id := range ids {
					now := readOne(t, dp, id)
					got := Pair{now.Packets - before[i].Packets, now.Bytes - before[i].Bytes}
					sent := s.Sent()[i]
					if want := (Pair{sent.Packets - was[i].Packets, sent.Bytes - was[i].Bytes}); got != want {
						t.Errorf("moved to %s, flow %d: counted %+v of %+v", to, i, got, want)
					}
				}
			})
			t.Logf("%d packets passed, %d of them counted twice", passed(), twice)
		})
	}
}

// A flow that drops lets no packet through while an interface moves between TCX and XDP.
func TestDroppedFlowLetsNoPacketThroughAMove(t *testing.T) {
	for mode, name := range map[Mode]string{ModeNative: modeNative, ModeGeneric: modeGeneric} {
		t.Run(name, func(t *testing.T) {
			w := testWire(t)
			dp := openTest(t, Options{MaxRules: 1024})
			floodRules(t, dp, 1)
			count := dp.Rules()[0]
			drop := count
			drop.Drop = true
			if err := dp.Exchange([]Rule{count}, []Rule{drop}); err != nil {
				t.Fatal(err)
			}
			passed := behind(t, w.Near)
			s := flood(t, w.Far, 1, 100, lab.SenderOptions{})
			movesUnderTraffic(t, dp, w.Near, s, mode, func(to string) {
				if n := passed(); n > 0 {
					t.Fatalf("moved to %s: %d packets passed", to, n)
				}
			})
			t.Logf("%d packets sent, none passed", s.Sent()[0].Packets)
		})
	}
}
