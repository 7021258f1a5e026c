package xdp

import (
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
	run := func(metadata uint32) error {
		type md struct{ Data, DataEnd, DataMeta, Ifindex, Queue, Egress uint32 }
		data := append(make([]byte, metadata), udp4(0x0a000001, 0x0a000002, 1000, 53, 100)...)
		verdict, err := marking.Run(&ebpf.RunOptions{Data: data, Context: md{Data: metadata, DataEnd: uint32(len(data))}})
		if err == nil && verdict != verdictPass {
			t.Errorf("verdict %d", verdict)
		}
		return err
	}
	check := func(unmarked, counted uint64) {
		t.Helper()
		if n, p := rs.unmarked(), readOne(t, rs, id).Packets; n != unmarked || p != counted {
			t.Errorf("%d packets unmarked, %d counted; want %d and %d", n, p, unmarked, counted)
		}
	}
	if err := run(0); err != nil {
		t.Fatal(err)
	}
	check(0, 1)
	full := uint32(252)
	for ; full > 0 && run(full) != nil; full -= 4 { // the kernel refuses a packet that has more than there is room for
	}
	if full == 0 {
		t.Fatal("no packet with metadata ran")
	}
	check(1, 1)
}
