package xdp

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// A process removes the only rule of a mask. The next one adopts its programs, and adds rules of that mask: with the same key,
// with another key, or with two keys.
func TestAdoptedProgramsFindNewRulesOfAnEmptiedMask(t *testing.T) {
	w := testWire(t)
	dir := pinDir(t)
	open := func() *Datapath {
		t.Helper()
		dp, err := Open(Options{MaxRules: 256, PinDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if err := dp.verify(); err != nil {
			t.Fatal(err)
		}
		return dp
	}
	dp := open()
	id := mustCounter(t, dp, "a")
	k1, k2 := exact4(1, 2, 3, 4, id), exact4(1, 2, 3, 5, id)
	other := tcpTo(80, id)
	other.Priority = 1
	k2.Order = 1
	mustAdd(t, dp, k1, other)
	attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	for round, step := range []struct{ remove, add []Rule }{
		{remove: []Rule{k1}}, {add: []Rule{k1}}, {remove: []Rule{k1}}, {add: []Rule{k2}}, {add: []Rule{k1}},
		{remove: []Rule{k1, k2}}, {add: []Rule{k2}}, {remove: []Rule{other, k2}}, {add: []Rule{k1, other}},
	} {
		if err := dp.Remove(step.remove...); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		mustAdd(t, dp, step.add...)
		rules, before := dp.Rules(), readOne(t, dp, id).Packets
		if err := dp.Close(); err != nil {
			t.Fatal(err)
		}
		dp = open()
		if got := dp.Rules(); len(got) != len(rules) {
			t.Fatalf("round %d: %d rules, want %d", round, len(got), len(rules))
		}
		if len(dp.Attachments()) != 1 {
			t.Fatalf("round %d: attachments %+v", round, dp.Attachments())
		}
		want := before
		p := attachedProgram(t, dp)
		for port := range uint16(4) {
			frame := udp4(1, 2, 3, 3+port, 64)
			runFrame(t, p, frame)
			for _, r := range rules {
				if r.Mask == k1.Mask && r.Key.Out.L4[3] == byte(3+port) {
					want++
				}
			}
		}
		p.Close()
		if got := readOne(t, dp, id).Packets; got != want {
			t.Errorf("round %d: counted %d, want %d", round, got, want)
		}
	}
	dp.Destroy()
}

// attachedProgram returns the program on the only hook, whichever process loaded it.
func attachedProgram(t *testing.T, dp *Datapath) *ebpf.Program {
	t.Helper()
	for _, h := range dp.hooks {
		info, err := h.link.Info()
		if err != nil {
			t.Fatal(err)
		}
		p, err := ebpf.NewProgramFromID(info.Program)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	t.Fatal("no hook")
	return nil
}

// One hook is attached already. A call asks for both, and the other one fails.
func TestRefusedHookDoesNotDetachTheOther(t *testing.T) {
	w := testWire(t)
	dp := openTest(t, Options{MaxRules: 256})
	attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	err := w.Near.NS.Do(func() error {
		// TCX takes 64 programs.
		for {
			p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
				Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}})
			if err != nil {
				return err
			}
			defer p.Close()
			l, err := link.AttachTCX(link.TCXOptions{Program: p, Interface: w.Near.Index, Attach: ebpf.AttachTCXEgress})
			if err != nil {
				break
			}
			defer l.Close()
		}
		if got, err := dp.Attach(w.Near.Name, AttachOptions{Ingress: true, Egress: true}); err == nil {
			t.Errorf("a full hook was taken: %+v", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := dp.Attachments(); len(got) != 1 || got[0].Hook != HookIngress {
		t.Errorf("attachments: got %+v, want the ingress hook", got)
	}
}
