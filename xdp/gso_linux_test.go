package xdp

import (
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf"
)

// The buffer has more segments than a program adds at once.
func TestBufferOfManySegmentsCountsEachSegment(t *testing.T) {
	dp := openTest(t, Options{MaxRules: 1024})
	id := mustCounter(t, dp, "a")
	r := exact4(1, 2, 3, 4, id)
	r.Key.Out.Flags |= FlagEgress
	mustAdd(t, dp, r)
	p := program(t, dp, HookEgress, 1)
	frame := udp4(1, 2, 3, 4, 1000)
	var want Pair
	for _, segs := range []uint32{0, 1, 2, 255, 256, 257, 512, 600, 1020, 65535} {
		wire := max(segs*100, uint32(len(frame)))
		if wire > 1<<16 {
			wire = 1 << 16
		}
		// struct __sk_buff: a test run takes wire_len, gso_segs and gso_size.
		ctx := make([]byte, 192)
		binary.NativeEndian.PutUint32(ctx[160:], wire)
		binary.NativeEndian.PutUint32(ctx[164:], segs)
		binary.NativeEndian.PutUint32(ctx[176:], 100)
		if _, err := p.Run(&ebpf.RunOptions{Data: frame, Context: ctx}); err != nil {
			t.Fatalf("%d segments: %v", segs, err)
		}
		want.Packets += uint64(max(segs, 1))
		want.Bytes += uint64(wire)
		if got := readOne(t, dp, id); got != want {
			t.Fatalf("%d segments of %d bytes: got %+v in all, want %+v", segs, wire, got, want)
		}
	}
}
