package xdp

import (
	"context"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab"
)

// pushTag puts a program in front of all others on the egress of an end. It gives every frame a tag
// of that TCI, which the kernel holds beside the frame as it does for a VLAN device over a NIC with tx-vlan-offload.
func pushTag(t testing.TB, e *lab.End, tci int32) {
	t.Helper()
	front(t, e, asm.Instructions{
		asm.Mov.Imm(asm.R2, int32(swap16(unix.ETH_P_8021Q))),
		asm.Mov.Imm(asm.R3, tci),
		asm.FnSkbVlanPush.Call(),
		asm.Mov.Imm(asm.R0, -1), // TCX_NEXT
		asm.Return(),
	})
}

func swap16(v uint16) uint16 { return v<<8 | v>>8 }

// front attaches a program of the test before all others on the egress of an end, until the test ends.
func front(t testing.TB, e *lab.End, code asm.Instructions) {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: code})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer p.Close() // the link holds it
	err = e.NS.Do(func() error {
		l, err := link.AttachTCX(link.TCXOptions{Program: p, Interface: e.Index, Attach: ebpf.AttachTCXEgress, Anchor: link.Head()})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The outer tag is not in the frame: VLAN 100 with priority 1. With its bytes swapped it would be VLAN 1056 with priority 3. Some frames
// have a second tag, which is in the frame.
func TestTagBesideTheFrameIsPartOfTheKey(t *testing.T) {
	const packets, size = 100, 100
	tagged := func(tci [2]byte, second bool) Rule {
		r := Rule{}
		k, m := &r.Key.Out, &r.Mask.Out
		k.Flags, m.Flags = FlagEgress|FlagTag1|FlagIPv4, FlagEgress|FlagTag1|FlagTag2|FlagIPv4
		k.VLAN[0], m.VLAN[0] = tci, [2]byte{255, 255}
		if second {
			k.Flags |= FlagTag2
			k.VLAN[1], m.VLAN[1] = [2]byte{0x0f, 0xa1}, [2]byte{255, 255}
		}
		return r
	}
	wire, swapped := [2]byte{0x20, 100}, [2]byte{100, 0x20}
	for _, c := range []struct {
		name   string
		inside bool // a second tag is in the frame
	}{{"one tag", false}, {"two tags", true}} {
		t.Run(c.name, func(t *testing.T) {
			w := testWire(t)
			dp := openTest(t, Options{MaxRules: 1024})
			right, wrong := tagged(wire, c.inside), tagged(swapped, c.inside)
			right.Counter, wrong.Counter = mustCounter(t, dp, "right"), mustCounter(t, dp, "wrong")
			wrong.Order = 1
			mustAdd(t, dp, right, wrong)
			attach(t, dp, w.Far, AttachOptions{Egress: true})
			pushTag(t, w.Far, 1<<13|100)
			frame := udp4(0x0a000001, 0x0a000002, 1000, 53, size)
			if c.inside {
				frame = append(append(frame[:12:12], 0x81, 0, 0x0f, 0xa1), frame[12:]...)
			}
			s, err := w.Far.NewSender([]lab.Stream{{Frames: [][]byte{frame}}}, lab.SenderOptions{Stack: true})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := s.Run(context.Background(), packets); err != nil {
				t.Fatal(err)
			}
			if got, want := readOne(t, dp, right.Counter), (Pair{packets, packets * uint64(len(frame)+4)}); got != want {
				t.Errorf("vlan id 100 pcp 1: got %+v, want %+v", got, want)
			}
			if got := readOne(t, dp, wrong.Counter); got != (Pair{}) {
				t.Errorf("vlan id 1056 pcp 3: got %+v, want none", got)
			}
		})
	}
}
