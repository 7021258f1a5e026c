package xdp

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab"
)

// Verdicts of programs of other owners (linux/bpf.h).
const (
	xdpTX       = 3
	xdpRedirect = 4
	tcxPass     = 0
	tcxRedirect = 7
)

// bySource is a program that decides packets of UDP by the source port: of the i-th flow of flood it runs verdicts[i]. at
// is the offset of data in its context.
func bySource(at int16, pass int32, verdicts []asm.Instructions) asm.Instructions {
	code := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R6, at, asm.Word),
		asm.LoadMem(asm.R3, asm.R6, at+4, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, 36),
		asm.JGT.Reg(asm.R4, asm.R3, "pass"),
		asm.LoadMem(asm.R7, asm.R2, 34, asm.Half),
	}
	for i, v := range verdicts {
		next := ownerName(i + 1)
		first := asm.JNE.Imm(asm.R7, int32(swap16(uint16(1000+i))), next)
		if i > 0 {
			first = first.WithSymbol(ownerName(i))
		}
		code = append(append(append(code, first), v...), asm.Return())
	}
	return append(code,
		asm.Mov.Imm(asm.R0, pass).WithSymbol(ownerName(len(verdicts))),
		asm.Ja.Label("out"),
		asm.Mov.Imm(asm.R0, pass).WithSymbol("pass"),
		asm.Return().WithSymbol("out"),
	)
}

func verdict(v int32) asm.Instructions { return asm.Instructions{asm.Mov.Imm(asm.R0, v)} }

// owner attaches an XDP program of another owner until the test ends.
func owner(t testing.TB, e *lab.End, flags link.XDPAttachFlags, code asm.Instructions) link.Link {
	t.Helper()
	return ownerWith(t, e, flags, 0, code)
}

// ownerWith is owner for a program of the flags kind, as xdp.frags has it.
func ownerWith(t testing.TB, e *lab.End, flags link.XDPAttachFlags, kind uint32, code asm.Instructions) link.Link {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "owner", Type: ebpf.XDP, AttachType: ebpf.AttachXDP, Flags: kind, License: "GPL", Instructions: code})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer p.Close()
	var l link.Link
	err = e.NS.Do(func() (err error) {
		l, err = link.AttachXDP(link.XDPOptions{Program: p, Interface: e.Index, Flags: flags})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// sendAll sends packets of each flow, and returns how many were sent of each, and how many its rule has counted.
func sendAll(t testing.TB, dp *Datapath, ids []uint32, from *lab.End) (sent, counted []Pair) {
	t.Helper()
	s := flood(t, from, len(ids), 100, lab.SenderOptions{})
	if err := s.Run(t.Context(), 2000*uint64(len(ids))); err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, id := range ids {
		sent, counted = append(sent, Pair(s.Sent()[i])), append(counted, readOne(t, dp, id))
	}
	return sent, counted
}

// Another owner's XDP program passes the first flow, drops the second, sends back the third, redirects the fourth to the interface
// and the fifth to an AF_XDP socket.
func TestBesideXDPOnlyPassedPacketsAreCounted(t *testing.T) {
	const native, generic, frags = link.XDPDriverMode, link.XDPGenericMode, unix.BPF_F_XDP_HAS_FRAGS
	for _, c := range []struct {
		name  string
		flags link.XDPAttachFlags
		kind  uint32
	}{{"native", native, 0}, {"generic", generic, 0}, {"native, frags", native, frags}, {"generic, frags", generic, frags}} {
		t.Run(c.name, func(t *testing.T) {
			w := testWire(t)
			xsk, err := lab.NewXSK(w.Near)
			if err != nil {
				t.Fatal(err)
			}
			defer xsk.Close()
			sockets, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer sockets.Close()
			if err := sockets.Put(uint32(0), uint32(xsk.FD())); err != nil {
				t.Fatal(err)
			}
			ownerWith(t, w.Near, c.flags, c.kind, bySource(0, xdpPass, []asm.Instructions{
				verdict(xdpPass), verdict(xdpDrop), verdict(xdpTX),
				{asm.Mov.Imm(asm.R1, int32(w.Near.Index)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call()},
				{asm.LoadMapPtr(asm.R1, sockets.FD()), asm.Mov.Imm(asm.R2, 0), asm.Mov.Imm(asm.R3, xdpDrop), asm.FnRedirectMap.Call()},
			}))
			dp := openTest(t, Options{MaxRules: 1024})
			ids := floodRules(t, dp, 5)
			err = w.Near.NS.Do(func() error {
				for _, mode := range []Mode{ModeAuto, ModeNative, ModeGeneric} {
					if _, err := dp.Attach(w.Near.Name, AttachOptions{Mode: mode, Ingress: true}); !errors.Is(err, ErrBusy) || strings.Count(err.Error(), "hook is taken") != 1 {
						t.Errorf("mode %d, not beside: %v", mode, err)
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if a := attach(t, dp, w.Near, AttachOptions{Ingress: true, Beside: true}); a[0].Mode != modeTCX {
				t.Fatalf("attachment %+v, want mode tcx", a[0])
			}
			sent, got := sendAll(t, dp, ids, w.Far)
			if want := []Pair{sent[0], {}, {}, {}, {}}; !slices.Equal(got, want) {
				t.Errorf("counted %d, want %d", got, want)
			}
			if taken, err := xsk.Taken(); taken != sent[4].Packets || err != nil {
				t.Errorf("the AF_XDP socket took %d packets, want %d; %v", taken, sent[4].Packets, err)
			}
			t.Logf("sent %d, counted %d", sent, got)
		})
	}
}

// Another TCX program returns a different verdict for each flow. If it runs before ours, it hides all flows except those with
// TCX_NEXT. If it runs after ours, it hides none.
func TestOnlyTCXProgramsBeforeOursHidePackets(t *testing.T) {
	for _, last := range []bool{false, true} {
		t.Run(map[bool]string{false: "first", true: "last"}[last], func(t *testing.T) {
			w := testWire(t)
			p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "neighbour", Type: ebpf.SchedCLS, License: "GPL", Instructions: bySource(76, -1, []asm.Instructions{
				verdict(-1), verdict(tcxPass), verdict(tcxShot),
				{asm.Mov.Imm(asm.R1, int32(w.Near.Index)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call()},
			})})
			if err != nil {
				t.Fatalf("%+v", err)
			}
			defer p.Close()
			err = w.Near.NS.Do(func() error {
				l, err := link.AttachTCX(link.TCXOptions{Program: p, Interface: w.Near.Index, Attach: ebpf.AttachTCXIngress})
				if err == nil {
					t.Cleanup(func() { l.Close() })
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			dp := openTest(t, Options{MaxRules: 1024})
			ids := floodRules(t, dp, 5)
			attach(t, dp, w.Near, AttachOptions{Mode: ModeTCX, Ingress: true, Last: last})
			sent, got := sendAll(t, dp, ids, w.Far)
			want, before := sent, 0
			if last {
				want, before = []Pair{sent[0], {}, {}, {}, sent[4]}, 1
			}
			if !slices.Equal(got, want) {
				t.Errorf("counted %d, want %d", got, want)
			}
			t.Logf("sent %d, counted %d", sent, got)
			err = w.Near.NS.Do(func() error {
				others, err := dp.Before(w.Near.Name, HookIngress)
				if len(others) != before {
					t.Errorf("programs before ours: %v, want %d", others, before)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestTCXDropsBesideAnotherXDPProgram(t *testing.T) {
	t.Run("native", func(t *testing.T) { testDropByTCX(t, link.XDPDriverMode, 0) })
	t.Run("generic, frags", func(t *testing.T) { testDropByTCX(t, link.XDPGenericMode, unix.BPF_F_XDP_HAS_FRAGS) })
}

func testDropByTCX(t *testing.T, flags link.XDPAttachFlags, kind uint32) {
	w := testWire(t)
	ownerWith(t, w.Near, flags, kind, append(verdict(xdpPass), asm.Return()))
	dp := openTest(t, Options{MaxRules: 1024})
	ids := floodRules(t, dp, 2)
	all := dp.Rules()
	drop := all[slices.IndexFunc(all, func(r Rule) bool { return r.Counter == ids[0] })]
	fresh := drop
	fresh.Drop = true
	if err := dp.Exchange([]Rule{drop}, []Rule{fresh}); err != nil {
		t.Fatal(err)
	}
	passed := behind(t, w.Near)
	attach(t, dp, w.Near, AttachOptions{Ingress: true, Beside: true})
	sent, got := sendAll(t, dp, ids, w.Far)
	if !slices.Equal(got, sent) {
		t.Errorf("counted %d, want %d", got, sent)
	}
	if got := passed(); got != sent[1].Packets {
		t.Errorf("%d packets passed, want %d", got, sent[1].Packets)
	}
}

// Under traffic, another owner replaces its XDP program ten times. Then it ten times detaches it and attaches another.
func TestEachPacketCountsOnceWhileTheOwnerReplacesItsProgram(t *testing.T) {
	w := testWire(t)
	dp := openTest(t, Options{MaxRules: 1024})
	ids := floodRules(t, dp, 4)
	passed := behind(t, w.Near)
	attach(t, dp, w.Near, AttachOptions{Ingress: true, Beside: true})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	s := flood(t, w.Far, len(ids), 100, lab.SenderOptions{})
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, 1<<40) }()
	sum := func() (n uint64) {
		for _, id := range ids {
			n += readOne(t, dp, id).Packets
		}
		return n
	}
	for i := range 10 {
		l := owner(t, w.Near, link.XDPDriverMode, bySource(0, xdpPass, []asm.Instructions{verdict(xdpDrop)}))
		other, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "other", Type: ebpf.XDP, AttachType: ebpf.AttachXDP, License: "GPL",
			Instructions: bySource(0, xdpPass, []asm.Instructions{verdict(xdpPass), verdict(xdpDrop)})})
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []func() error{func() error { return l.Update(other) }, l.Close, other.Close} {
			was := sum()
			lab.Eventually(t, "packets between two steps", func() bool { return sum() > was+100 })
			if err := step(); err != nil {
				t.Fatalf("round %d: %v", i, err)
			}
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	lab.Eventually(t, "every packet that passed counted once", func() bool { return sum() == passed() })
	t.Logf("%d packets over 10 replacements, each counted once", passed())
}

// While another owner has the XDP hook, Attach leaves the interface on TCX. Without Retake it does so even afterwards.
func TestRetakeMovesToXDPOnceTheOwnerHasLeft(t *testing.T) {
	w := testWire(t)
	dp := openTest(t, Options{MaxRules: 1024, PinDir: pinDir(t), Early: []string{}}) // as on a NIC
	ids := floodRules(t, dp, 1)
	l := owner(t, w.Near, link.XDPDriverMode, append(verdict(xdpPass), asm.Return()))
	o := AttachOptions{Ingress: true, Beside: true, Retake: true}
	for range 2 {
		a := attach(t, dp, w.Near, o)
		if a[0].Mode != modeTCX || len(a[0].Rejected) != 1 || !errors.Is(a[0].Rejected[0], ErrBusy) {
			t.Fatalf("attachment %+v, want mode tcx because the hook is taken", a[0])
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	o.Retake = false
	if a := attach(t, dp, w.Near, o); a[0].Mode != modeTCX {
		t.Fatalf("attachment %+v, want mode tcx", a[0])
	}
	o.Retake = true
	if a := attach(t, dp, w.Near, o); a[0].Mode != modeNative || a[0].Fresh {
		t.Fatalf("attachment %+v, want mode native, moved", a[0])
	}
	if sent, got := sendAll(t, dp, ids, w.Far); !slices.Equal(got, sent) {
		t.Errorf("counted %d, want %d", got, sent)
	}
	if err := dp.Close(); err != nil {
		t.Fatal(err)
	}
	dp = openTest(t, Options{MaxRules: 1024, PinDir: dp.dir})
	if a := dp.Attachments(); len(a) != 1 || a[0].Mode != modeNative || !a[0].Adopted {
		t.Errorf("after a restart: %+v", a)
	}
}
