package xdprows

import (
	"context"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/xdp"
)

// handRule returns a rule for the flow of bpf/hand.bpf.c: UDP to 192.0.2.1 port 53.
func handRule(counter uint32) xdp.Rule {
	r := xdp.Rule{Counter: counter}
	k, m := &r.Key.Out, &r.Mask.Out
	k.Flags, m.Flags = xdp.FlagIPv4|xdp.FlagL4, xdp.FlagIPv4|xdp.FlagL4|xdp.FlagEgress
	k.Proto, m.Proto = 17, 0xff
	k.L4, m.L4 = [4]byte{0, 0, 0, 53}, [4]byte{0, 0, 255, 255}
	copy(k.Addr[4:], []byte{192, 0, 2, 1})
	copy(m.Addr[4:], []byte{255, 255, 255, 255})
	return r
}

// openHand compares the cost of a frame in our program and in one written by hand, both above the empty program.
func openHand(frame []byte) opener {
	return func(context.Context, bench.Env) (*bench.Sides, error) {
		return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
			r, err := newRigOf(handRule)
			if err != nil {
				return nil, err
			}
			open.Add(r.close)
			r.frame = frame

			spec, err := loadHand()
			if err != nil {
				return nil, fmt.Errorf("reading the object of the program written by hand: %w", err)
			}
			hand, err := ebpf.NewCollection(spec)
			if err != nil {
				return nil, fmt.Errorf("loading the program written by hand: %w", err)
			}
			open.Add(func() error { hand.Close(); return nil })
			r.coll.Programs["hand"] = hand.DetachProgram("hand")
			if err := agree(r, hand.Maps["hand_counts"]); err != nil {
				return nil, err
			}

			return &bench.Sides{
				Ours:  r.side(attachedForOne),
				Ref:   r.side("hand"),
				Base:  r.side("bench_empty"),
				N:     runs,
				Turns: 8,

				// Ours takes twelve instructions more on a match: less than what two runs of the empty program differ by on
				// a core that overlaps one packet with the next.
				Resolution: 1.0 / 8,
			}, nil
		})
	}
}

// agree runs our program and the one written by hand equally often, and compares their counts.
func agree(r *rig, counts *ebpf.Map) error {
	for _, name := range []string{attachedForOne, "hand"} {
		// The kernel begins a run anew after a signal, and counts its first packets twice.
		if err := bench.WithoutSignals(func() error { return r.run(name, 1000) }); err != nil {
			return err
		}
	}

	var values []struct{ Packets, Bytes uint64 } // by CPU
	if err := counts.Lookup(uint32(0), &values); err != nil {
		return fmt.Errorf("reading the counts of the program written by hand: %w", err)
	}
	var packets, bytes uint64
	for _, v := range values {
		packets += v.Packets
		bytes += v.Bytes
	}

	ours, err := r.counted()
	if err != nil {
		return err
	}
	if ours != packets || bytes != packets*uint64(len(r.frame)) {
		return fmt.Errorf("our program counted %d packets, the one written by hand %d and %d bytes", ours, packets, bytes)
	}
	return nil
}
