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
	dp, err := Open(Options{PinDir: dir, MaxRules: 1024})
	if err != nil {
		return err
	}
	dp.onStep = func(name string) {
		if name == step {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	_, err = dp.Attach(ifname, AttachOptions{Mode: to, Ingress: true})
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
	dp, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	ids := floodRules(t, dp, 2)
	attach(t, dp, w.Near, AttachOptions{Mode: from, Ingress: true})
	before := dp.Now()
	if err := dp.Close(); err != nil {
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
	dp = openTest(t, o)
	found := dp.Attachments()
	if len(found) != left || left > 1 {
		t.Errorf("%d programs are left and %d found, want the same number, and 1 at most", left, len(found))
	}
	if last, open := dp.Lost(w.Near.Name, HookIngress); open != (len(found) == 0) || !open && !last.After(before) {
		t.Errorf("the next process finds %+v, the last outage at %d, one under way: %t", found, last, open)
	}
	if byXDP := xdpHeld(t, w.Near); len(found) == 1 && byXDP == (found[0].Mode == modeTCX) {
		t.Errorf("the next process finds %+v; a program on the hook of XDP: %t", found[0], byXDP)
	}

	a := attach(t, dp, w.Near, AttachOptions{Mode: to, Ingress: true})
	if last, open := dp.Lost(w.Near.Name, HookIngress); open || !last.After(before) {
		t.Errorf("attachment %+v, the last outage ended at %d, one is under way: %t", a[0], last, open)
	}
	if n := ingressPrograms(t, w.Near); n != 1 {
		t.Errorf("%d programs on the interface, want 1", n)
	}

	s := flood(t, w.Far, len(ids), 100, lab.SenderOptions{})
	if err := s.Run(t.Context(), 2000); err != nil {
		t.Fatal(err)
	}
	compareCounts(t, dp, ids, s)
}

// xdpHeld reports whether a program is on the XDP hook of an end.
func xdpHeld(t *testing.T, e *lab.End) (held bool) {
	t.Helper()
	if err := e.NS.Do(func() error { held = xdpProgram(e.Index) != 0; return nil }); err != nil {
		t.Fatal(err)
	}
	return held
}

// A move is an outage that ends with it. A hook that stays as it is has none, also if a move is refused.
func TestMoveIsAnOutageAndARefusedMoveIsNone(t *testing.T) {
	w := testWire(t)
	dp := openTest(t, Options{MaxRules: 1024})
	attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	last := dp.Now()
	check := func(doing string, outage bool) {
		t.Helper()
		was := last
		var open bool
		if last, open = dp.Lost(w.Near.Name, HookIngress); open || last.After(was) != outage {
			t.Errorf("%s: the last outage ended at %d, and it was %d before; want another one: %t; one is under way: %t",
				doing, last, was, outage, open)
		}
	}
	check("attached", false)
	for _, to := range []Mode{ModeTCX, ModeNative, ModeTCX} {
		if a := attach(t, dp, w.Near, AttachOptions{Mode: to, Ingress: true}); a[0].Fresh {
			t.Errorf("attachment %+v, want a moved one", a[0])
		}
		check("moved", true)
		attach(t, dp, w.Near, AttachOptions{Mode: to, Ingress: true})
		check("a hook that stays", false)
	}

	owner(t, w.Near, link.XDPDriverMode, append(verdict(xdpPass), asm.Return()))
	err := w.Near.NS.Do(func() error {
		_, err := dp.Attach(w.Near.Name, AttachOptions{Mode: ModeNative, Ingress: true})
		return err
	})
	if !errors.Is(err, ErrBusy) {
		t.Errorf("moving to a hook that is taken: %v", err)
	}
	check("a refused move, which changed nothing", false)
}
