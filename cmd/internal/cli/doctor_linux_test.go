package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
)

func TestDoctorAnswersAsAttachingDoes(t *testing.T) {
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
	type check struct{ Object, Feature, Answer, Reason, Fix string }
	ask := func(name string) (answers map[string]check) {
		t.Helper()
		answers = map[string]check{}
		var code int
		var out, talk string
		if err := wire.Near.NS.Do(func() error {
			code, out, talk = run(t, "doctor", "-o", "json", name)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		var j struct{ Checks []check }
		if err := json.Unmarshal([]byte(out), &j); err != nil || code != exitOK {
			t.Fatalf("code %d, %v, %s", code, err, talk)
		}
		for _, c := range j.Checks {
			if c.Object == name {
				answers[c.Feature] = c
			}
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

	r := ask("nosuch0")["interface"]
	if lab.Step(t, r.Fix, "name one that is there"); r.Answer != "no" || !strings.Contains(r.Reason, wire.Near.Name) {
		t.Errorf("an interface that is not there: %+v", r)
	}
	for name, index := range map[string]int{wire.Near.Name: wire.Near.Index, "lo": 1} {
		r := ask(name)["native XDP"]
		l, err := attach(index, link.XDPDriverMode)
		switch {
		case r.Answer == "inconclusive" && strings.Contains(r.Reason, "6.3"): // kernels before do not say
			t.Logf("%s: native XDP: %s", name, r.Reason)
		case (r.Answer == "yes") != (err == nil):
			t.Errorf("%s: native XDP: answer %+v, attaching: %v", name, r, err)
		}
		if err != nil {
			if l, err = attach(index, link.XDPGenericMode); err != nil {
				t.Fatal(err)
			}
		}
		defer l.Close()
		held := ask(name)["free XDP hook"]
		if held.Answer != "no" || !strings.Contains(held.Reason, "cli_doctor") {
			t.Errorf("%s: a program is attached: %+v", name, held)
		}
		wire.Near.Do(t, lab.Step(t, held.Fix, "bpftool link detach id …"))
		if r := ask(name)["free XDP hook"]; r.Answer != "yes" {
			t.Errorf("%s: after %q: %+v", name, held.Fix, r)
		}

		// Without a link, as ip link attaches a program.
		if err := wire.Near.NS.Do(func() error {
			l, err := netlink.LinkByIndex(index)
			if err != nil {
				return err
			}
			return netlink.LinkSetXdpFd(l, prog.FD())
		}); err != nil {
			t.Fatal(err)
		}
		held = ask(name)["free XDP hook"]
		wire.Near.Do(t, lab.Step(t, held.Fix, "ip link set dev … xdp off"))
		if r := ask(name)["free XDP hook"]; r.Answer != "yes" {
			t.Errorf("%s: after %q: %+v", name, held.Fix, r)
		}
	}
}
