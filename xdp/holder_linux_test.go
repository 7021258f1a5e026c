package xdp

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/flowtally/flowtally/internal/lab"
)

// A list is used for ten times as long as it took to make.
func TestQuestionsAboutManyHooksShareAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists := 0
		var l cache[uint32, int]
		list := func() (map[uint32]int, error) {
			lists++
			time.Sleep(10 * time.Millisecond)
			return map[uint32]int{7: lists}, nil
		}
		for range 240 {
			if got, err := l.get(7, list); got != 1 || err != nil {
				t.Fatalf("got %d, %v", got, err)
			}
		}
		time.Sleep(101 * time.Millisecond)
		if got, _ := l.get(7, list); got != 2 {
			t.Errorf("got %d from the list %d, want it from another one", got, lists)
		}
		if got, _ := l.get(8, list); got != 0 || lists != 2 {
			t.Errorf("got %d for a hook that is not listed, after %d lists", got, lists)
		}
	})
}

// lo has index 1 in every namespace. The advice on freeing its hook must concern the program here, and not a link elsewhere.
func TestTheLinkOfAnotherNamespaceIsNoAdvice(t *testing.T) {
	w := testWire(t)
	programs := make([]*ebpf.Program, 2)
	for i := range programs {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Type: ebpf.XDP, License: "GPL", AttachType: ebpf.AttachXDP, Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		programs[i] = p
	}
	if err := w.Far.NS.Do(func() error {
		l, err := link.AttachXDP(link.XDPOptions{Program: programs[0], Interface: 1, Flags: link.XDPGenericMode})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}

	var fix string
	if err := w.Near.NS.Do(func() error {
		lo, err := netlink.LinkByIndex(1)
		if err == nil {
			err = netlink.LinkSetXdpFd(lo, programs[1].FD())
		}
		if err == nil {
			fix = new(holders).of(1).fix(1, "lo")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	w.Near.Do(t, lab.Step(t, fix, "ip link set dev … xdp off"))
}
