//go:build cgo

package ibv

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

// TestKernelPassesTheSuitesOfRDMACore asks the libraries of each release, and this test those of the host. The comments name the layer that refuses.
func TestRefusedFlowsReturnTheErrnosOfTheKernel(t *testing.T) {
	b := newBench(t, newWire(t))
	port := func(mask uint16) Spec {
		return UDPSpec{Val: TCPUDPFilter{DstPort: 0x1234 & mask}, Mask: TCPUDPFilter{DstPort: mask}}
	}
	for _, c := range []struct {
		name string
		flow FlowAttr
		want error
	}{
		{"port 0", FlowAttr{}, syscall.EINVAL},                                                                                 // uverbs, since Linux 5.14; libmlx5 and mlx5_ib take it
		{"port 2", FlowAttr{Port: 2}, syscall.EINVAL},                                                                          // uverbs
		{"priority 16", FlowAttr{Port: 1, Priority: 16}, syscall.ENOMEM},                                                       // mlx5_ib
		{"an unknown type", FlowAttr{Port: 1, Type: 4}, syscall.EOPNOTSUPP},                                                    // mlx5_ib
		{"an unknown flag", FlowAttr{Port: 1, Flags: 1 << 3}, syscall.EINVAL},                                                  // uverbs
		{"a flag of other drivers", FlowAttr{Port: 1, Flags: 1}, syscall.EINVAL},                                               // mlx5_ib
		{"DONT_TRAP with EGRESS", FlowAttr{Port: 1, Flags: FlowDontTrap | FlowEgress}, syscall.EOPNOTSUPP},                     // mlx5_core; mlx5_ib takes it
		{"ALL_DEFAULT with DONT_TRAP", FlowAttr{Port: 1, Type: FlowAttrAllDefault, Flags: FlowDontTrap}, syscall.EINVAL},       // uverbs
		{"MC_DEFAULT with EGRESS", FlowAttr{Port: 1, Type: FlowAttrMCDefault, Flags: FlowEgress}, syscall.EINVAL},              // mlx5_ib
		{"a value outside its mask", FlowAttr{Port: 1, Specs: []Spec{UDPSpec{Val: TCPUDPFilter{DstPort: 1}}}}, syscall.EINVAL}, // mlx5_core
		{"SNIFFER", FlowAttr{Port: 1, Type: FlowAttrSniffer}, nil},
	} {
		f, err := b.qp.CreateFlow(c.flow)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if err == nil {
			b.check(f.Close())
		}
	}

	// Any index can be attached. The read needs room for it, and a buffer of uverbs has at most 65,535 bytes.
	far := b.counters(CounterAttach{CounterPackets, 8191})
	f := b.flow(far, port(0xffff))
	if err := far.Read(make([]uint64, 8191), 0); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("reading index 8191 into 8,191 values: %v", err)
	}
	b.check(f.Close())

	// Rules with one match share an entry, of which no rule drops beside one that does not.
	b.flow(b.counters(both...), port(1))
	drops := FlowAttr{Port: 1, Flags: FlowDontTrap, Specs: []Spec{port(1), DropSpec{}}}
	if f, err := b.qp.CreateFlow(drops); !errors.Is(err, syscall.EEXIST) {
		t.Errorf("a flow that drops, beside one with the same match that does not: %v, %v", f, err)
	}
}

// libmlx5 refuses the first flow too, but with the counters object locked: the Attach behind it would wait for ever.
func TestCountersRefusedWithoutAPointCountAfterAttach(t *testing.T) {
	b := newBench(t, newWire(t))
	n := b.counters()
	attr := FlowAttr{Port: 1, Flags: FlowDontTrap, Specs: []Spec{b.toUs(), CountSpec{Counters: n}}}

	_, err := b.qp.CreateFlow(attr)
	var library *Error
	if !errors.Is(err, syscall.EINVAL) || errors.As(err, &library) || !strings.Contains(err.Error(), "Counters.Attach") {
		t.Fatalf("a flow without an attached point: %v, want EINVAL before the library is called, and the next step", err)
	}

	for _, p := range both {
		b.check(n.Attach(p))
	}
	b.flow(n, b.toUs())
	b.send(frame100(b), 3)
	b.wants(n, 3, 300)
}
