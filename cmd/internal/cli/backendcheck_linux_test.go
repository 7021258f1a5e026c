package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/flowtally/flowtally/dataplane/probe"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
)

func TestAskKernel(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want probe.Answer
		fix  string
	}{
		{nil, probe.Yes, ""},
		{fmt.Errorf("x: %w", ebpf.ErrNotSupported), probe.No, "newer"},
		{fmt.Errorf("x: %w", os.ErrPermission), probe.Inconclusive, "run as root"},
		{errors.New("x"), probe.Inconclusive, ""},
	} {
		r := askKernel("feature", tt.err, "newer")
		if r.Answer != tt.want || !strings.HasPrefix(r.Fix, tt.fix) || (r.Fix == "") != (tt.fix == "") {
			t.Errorf("%v: %+v, want %v with fix %q", tt.err, r, tt.want, tt.fix)
		}
	}
}

// TestCheckInterface compares the answers with what attaching then does.
func TestCheckInterface(t *testing.T) {
	need.Netns(t)
	need.BPF(t)
	wire, err := lab.NewWire(lab.WireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer wire.Close()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "cli_doctor", Type: ebpf.XDP, License: "Dual BSD/GPL", AttachType: ebpf.AttachXDP,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	ask := func(name string) (answers map[string]probe.Result) {
		t.Helper()
		answers = map[string]probe.Result{}
		if err := wire.Near.NS.Do(func() error {
			for _, r := range checkInterface(name) {
				answers[r.Feature] = r
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return answers
	}
	attach := func(index int, flags link.XDPAttachFlags) (l link.Link, err error) {
		t.Helper()
		if e := wire.Near.NS.Do(func() error {
			l, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: index, Flags: flags})
			return nil
		}); e != nil {
			t.Fatal(e)
		}
		return l, err
	}

	if r := ask("nosuch0")["interface"]; r.Answer != probe.No || r.Fix == "" {
		t.Errorf("an interface that is not there: %+v", r)
	}
	for name, index := range map[string]int{wire.Near.Name: wire.Near.Index, "lo": 1} {
		for feature, flags := range map[string]link.XDPAttachFlags{
			"ingress by XDP, native": link.XDPDriverMode, "ingress by XDP, generic": link.XDPGenericMode,
		} {
			r := ask(name)[feature]
			l, err := attach(index, flags)
			switch {
			case r.Answer == probe.Inconclusive:
				t.Logf("%s, %s: %s", name, feature, r.Reason)
			case (r.Answer == probe.Yes) != (err == nil):
				t.Errorf("%s, %s: answer %+v, attaching: %v", name, feature, r, err)
			}
			if err != nil {
				continue
			}
			if r := ask(name)["XDP hook free"]; r.Answer != probe.No || !strings.Contains(r.Reason, "cli_doctor") {
				t.Errorf("%s: a program is attached: %+v", name, r)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if r, held := ask(name)["XDP hook free"]; held {
				t.Errorf("%s: nothing is attached: %+v", name, r)
			}
		}
	}
}

func TestHaveTCX(t *testing.T) {
	need.BPF(t)
	if err := haveTCX(); err != nil && !errors.Is(err, ebpf.ErrNotSupported) {
		t.Errorf("inconclusive with privileges: %v", err)
	}
}
