package xdp

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/flowtally/flowtally/internal/lab"
)

// moveUntilKilled is the child process of TestMoveKilledAtAnyStepLeavesAtMostOneProgram. It moves an interface, and kills
// itself at a step of the move.
func moveUntilKilled(args string) error {
	var dir, ifname, step string
	var to Mode
	if _, err := fmt.Sscan(args, &dir, &ifname, &to, &step); err != nil {
		return err
	}
	rs, err := Open(Options{PinDir: dir, MaxRules: 1024})
	if err != nil {
		return err
	}
	rs.steps = func(name string) {
		if name == step {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	_, err = rs.Attach(ifname, AttachOptions{Mode: to, Ingress: true})
	return errors.Join(err, errors.New("the move came to its end"))
}

// A kill at any step of a move leaves one program or none. The next process learns that packets may be missing or counted
// twice. Then it has one program on the interface, which counts each packet once.
func TestMoveKilledAtAnyStepLeavesAtMostOneProgram(t *testing.T) {
	for _, from := range []Mode{ModeNative, ModeGeneric, ModeTCX} {
		to := ModeTCX
		if from == ModeTCX {
			to = ModeNative
		}
		for _, step := range []string{"noted", "attached", "unpinned", "recorded", "pinned", "detached"} {
			t.Run(fmt.Sprintf("%s to %s, %s", modes(HookIngress, from, false)[0], modes(HookIngress, to, false)[0], step), func(t *testing.T) {
				testKillInMove(t, from, to, step)
			})
		}
	}
}

func testKillInMove(t *testing.T, from, to Mode, step string) {
	w := testWire(t)
	o := Options{PinDir: pinDir(t), MaxRules: 1024}
	rs, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	ids := floodRules(t, rs, 2)
	rs.Declared(attach(t, rs, w.Near, AttachOptions{Mode: from, Ingress: true})...)
	if err := rs.Close(); err != nil {
		t.Fatal(err)
	}

	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d %s", moveEnv, o.PinDir, w.Near.Name, to, step))
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := w.Near.NS.Do(cmd.Run); err == nil || out.Len() > 0 {
		t.Fatalf("the process ended by itself: %v\n%s", err, out.String())
	}

	left := ingressPrograms(t, w.Near)
	rs = openTest(t, o)
	found := rs.Attachments()
	if len(found) != left || left > 1 {
		t.Errorf("%d programs are left and %d found, want the same number, and 1 at most", left, len(found))
	}
	if len(found) == 1 && !found[0].Gap {
		t.Errorf("the next process finds %+v, without a gap", found[0])
	}
	if byXDP := xdpHeld(t, w.Near); len(found) == 1 && byXDP == (found[0].Mode == modeTCX) {
		t.Errorf("the next process finds %+v; a program on the hook of XDP: %t", found[0], byXDP)
	}

	a := attach(t, rs, w.Near, AttachOptions{Mode: to, Ingress: true})
	if !a[0].Gap {
		t.Errorf("attachment %+v, want a gap", a[0])
	}
	if n := ingressPrograms(t, w.Near); n != 1 {
		t.Errorf("%d programs on the interface, want 1", n)
	}

	s := flood(t, w.Far, len(ids), 100, lab.SenderOptions{})
	if err := s.Run(t.Context(), 2000); err != nil {
		t.Fatal(err)
	}
	compareCounts(t, rs, ids, s)

	rs.Declared(attach(t, rs, w.Near, AttachOptions{Mode: to, Ingress: true})...)
	if a := rs.Attachments(); len(a) != 1 || a[0].Gap {
		t.Errorf("after the declaration: %+v, want one hook without a gap", a)
	}
}

// xdpHeld reports whether a program is on the XDP hook of an end.
func xdpHeld(t *testing.T, e *lab.End) (held bool) {
	t.Helper()
	if err := e.NS.Do(func() error { held = xdpProgram(e.Index) != 0; return nil }); err != nil {
		t.Fatal(err)
	}
	return held
}

// A move keeps its gap until Attach has returned it, even if the move has failed.
func TestMoveKeepsItsGapUntilAttachReturnsIt(t *testing.T) {
	w := testWire(t)
	rs := openTest(t, Options{MaxRules: 1024})
	a := attach(t, rs, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	rs.Declared(a...)
	check := func(doing string, gap bool) {
		t.Helper()
		if got := rs.Attachments(); len(got) != 1 || got[0].Gap != gap {
			t.Errorf("%s: got %+v, want one hook, with a gap: %t", doing, got, gap)
		}
	}
	check("declared", false)
	for _, to := range []Mode{ModeTCX, ModeNative} {
		a = attach(t, rs, w.Near, AttachOptions{Mode: to, Ingress: true})
		if !a[0].Moved || a[0].Fresh {
			t.Errorf("attachment %+v, want a moved one", a[0])
		}
		check("moved", true)
		rs.Declared(a...)
		check("moved and declared", false)
		if a := attach(t, rs, w.Near, AttachOptions{Mode: to, Ingress: true}); a[0].Moved {
			t.Errorf("attachment %+v, want one that stays", a[0])
		}
	}

	attach(t, rs, w.Near, AttachOptions{Mode: ModeTCX, Ingress: true})
	a = attach(t, rs, w.Near, AttachOptions{Mode: ModeTCX, Ingress: true})
	rs.Declared(a...)
	owner(t, w.Near, link.XDPDriverMode, append(verdict(xdpPass), asm.Return()))
	err := w.Near.NS.Do(func() error {
		_, err := rs.Attach(w.Near.Name, AttachOptions{Mode: ModeNative, Ingress: true})
		return err
	})
	if !errors.Is(err, ErrBusy) {
		t.Errorf("moving to a hook that is taken: %v", err)
	}
	check("a refused move, which changed nothing", false)

	rs.hooks[hookKey{a[0].Port, HookIngress}].moved = true // as a move that the dispatcher refuses
	*rs.meta.port(a[0].Port).gap(HookIngress) = 1
	rs.Declared(a...)
	check("a failed move, declared before Attach has returned it", true)
	if a = attach(t, rs, w.Near, AttachOptions{Mode: ModeTCX, Ingress: true}); !a[0].Moved {
		t.Errorf("attachment %+v, want the move returned", a[0])
	}
	rs.Declared(a...)
	check("a failed move, declared", false)
}
