package dispatcher

import (
	"bytes"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/flowtally/flowtally/internal/lab/need"
)

func TestEmptyPlacesPassThePacket(t *testing.T) {
	need.BPF(t)
	for _, version := range []uint8{oldVersion, newVersion} {
		for n := range mostMembers + 1 {
			for _, frags := range []bool{false, true} {
				members := make([]member, n)
				for i := range members {
					members[i] = member{Priority: uint32(10 * i), Actions: 1 << verdictPass, Frags: frags || i > 0}
				}
				c := configOf(version, members)
				p, err := load(c)
				if err != nil {
					t.Fatalf("%d places: %+v", n, err)
				}
				defer p.Close()
				got, err := configured(p)
				if err != nil || got != *c {
					t.Errorf("%d places: read %+v, %v, want %+v", n, got, err, *c)
				}
				v, err := p.Run(&ebpf.RunOptions{Data: bytes.Repeat([]byte{1}, 64)})
				if v != verdictPass || err != nil {
					t.Errorf("%d places: verdict %d, %v", n, v, err)
				}
			}
		}
	}
}

func TestMouldHasTheFunctionToReplace(t *testing.T) {
	need.BPF(t)
	p, err := Mould()
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer p.Close()
	h, err := p.Handle()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	spec, err := h.Spec(nil)
	if err != nil {
		t.Fatal(err)
	}
	if types, err := spec.AnyTypesByName(Place); err != nil || len(types) != 1 {
		t.Errorf("%v, %v", types, err)
	}
}

// Each place calls one helper that could alter packets, on a branch for a NULL context.
func TestPlacesAlterNoPacket(t *testing.T) {
	code := instructions(configOf(newVersion, make([]member, mostMembers)), 0)
	calls := 0
	for i, ins := range code {
		if !ins.IsBuiltinCall() {
			continue
		}

		calls++
		if call := asm.FnXdpAdjustTail.Call(); ins.Constant != call.Constant {
			t.Errorf("instruction %d calls %v", i, ins)
		}
		if guard := code[i-2]; guard.OpCode.JumpOp() != asm.JNE || guard.Dst != asm.R1 || guard.Constant != 0 {
			t.Errorf("instruction %d is behind %v, want the comparison of the context with 0", i, guard)
		}
	}
	if calls != mostMembers {
		t.Errorf("%d calls, want one in each of %d places", calls, mostMembers)
	}
}
