package xdp

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
)

// The program that marks packets in a move leaves a packet to TCX that has no room for more metadata, and counts it as unmarked.
func TestPacketsThatCannotBeMarked(t *testing.T) {
	w := testWire(t)
	rs := openTest(t, Options{MaxRules: 1024})
	id := floodRules(t, rs, 1)[0]
	a := attach(t, rs, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	marking, err := rs.load.named(rs.constants, rs.hooks[hookKey{a[0].Port, HookIngress}].site, flowtallyProgFlowtallyXdpMark)
	if err != nil {
		t.Fatal(err)
	}
	defer marking.Close()
	check := func(unmarked, counted uint64) {
		t.Helper()
		if n, p := rs.unmarked(), readOne(t, rs, id).Packets; n != unmarked || p != counted {
			t.Errorf("%d packets unmarked, %d counted; want %d and %d", n, p, unmarked, counted)
		}
	}
	if err := runBehind(marking, 0); err != nil {
		t.Fatal(err)
	}
	check(0, 1)
	runUnmarked(t, marking)
	check(1, 1)
}

// runBehind runs a program on a packet that has n bytes of metadata already.
func runBehind(p *ebpf.Program, n uint32) error {
	type md struct{ Data, DataEnd, DataMeta, Ifindex, Queue, Egress uint32 }
	data := append(make([]byte, n), udp4(0x0a000001, 0x0a000002, 1000, 53, 100)...)
	verdict, err := p.Run(&ebpf.RunOptions{Data: data, Context: md{Data: n, DataEnd: uint32(len(data))}})
	if err == nil && verdict != verdictPass {
		err = fmt.Errorf("verdict %d", verdict)
	}
	return err
}

// runUnmarked runs the program that marks on one packet that has no room for a mark.
func runUnmarked(t *testing.T, marking *ebpf.Program) {
	t.Helper()
	full := uint32(252)
	for ; full > 0 && runBehind(marking, full) != nil; full -= 4 { // the kernel refuses a packet that has more than there is room for
	}
	if full == 0 {
		t.Fatal("no packet with metadata ran")
	}
}
