package xdprows

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/xdp"
)

// rig is the bench's object with the rules of n flows.
type rig struct {
	rules    *xdp.Datapath
	coll     *ebpf.Collection
	counters []uint32
	frame    []byte
}

// newRig returns a rig with one rule for each of so many flows.
func newRig(flows int) (*rig, error) {
	makers := make([]func(uint32) xdp.Rule, flows)
	for i := range makers {
		makers[i] = func(counter uint32) xdp.Rule { return rule(frame(uint16(i)), counter) }
	}
	r, err := newRigOf(makers...)
	if err != nil {
		return nil, err
	}
	if err := r.fillPeer(flows); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// newRigOf returns a rig with one rule of each maker. A maker gets the number of the rule's counter.
func newRigOf(makers ...func(counter uint32) xdp.Rule) (_ *rig, err error) {
	r := &rig{frame: frame(0)}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.rules, err = xdp.Open(xdp.Options{MaxRules: max(len(makers), 1024)}); err != nil {
		return nil, err
	}
	rules := make([]xdp.Rule, len(makers))
	for i, ruleFor := range makers {
		c, err := r.rules.AllocCounter(fmt.Sprint("flow-", i))
		if err != nil {
			return nil, err
		}
		rules[i] = ruleFor(c.ID)
		r.counters = append(r.counters, c.ID)
	}
	if err = r.rules.Add(rules...); err != nil {
		return nil, err
	}
	return r, r.load()
}

// attachedForOne is the program that a hook gets for one rule of IPv4. The object of the bench has it, too.
const attachedForOne = "flowtally_xdp_one"

func (r *rig) load() error {
	spec, err := loadRows()
	if err != nil {
		return fmt.Errorf("reading the bench's object: %w", err)
	}
	delete(spec.Programs, "flowtally_tcx")
	delete(spec.Programs, "flowtally_tcx_nobtf")
	delete(spec.Programs, "flowtally_xdp61")
	maps, err := r.rules.Specialize(spec, xdp.HookIngress, 1)
	if err != nil {
		return err
	}
	r.coll, err = ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: maps})
	if err != nil {
		return fmt.Errorf("loading the bench's object: %w", err)
	}
	return nil
}

// fillPeer gives the peer's hash the same flows.
func (r *rig) fillPeer(flows int) error {
	keys, ids := make([][2]uint64, flows), make([]uint32, flows)
	for i := range keys {
		k := rule(frame(uint16(i)), 0).Key.Out
		k.Flags |= xdp.FlagEth
		b := make([]byte, 0, 16)
		b = append(b, k.L4[:]...)
		b = append(b, k.Proto, 0)
		b = binary.NativeEndian.AppendUint16(b, uint16(k.Flags))
		b = append(b, k.Addr[:8]...)
		keys[i] = [2]uint64{binary.NativeEndian.Uint64(b), binary.NativeEndian.Uint64(b[8:])}
		ids[i] = uint32(i)
	}
	_, err := r.coll.Maps["bench_hash"].BatchUpdate(keys, ids, nil)
	if err != nil {
		return fmt.Errorf("filling the peer's hash: %w", err)
	}
	return nil
}

func (r *rig) close() error {
	if r.coll != nil {
		r.coll.Close()
	}
	if r.rules != nil {
		return r.rules.Destroy()
	}
	return nil
}

// counted is the sum of all flows' packets.
func (r *rig) counted() (uint64, error) {
	v := make([]xdp.Pair, len(r.counters))
	if err := r.rules.Read(r.counters, v); err != nil {
		return 0, err
	}
	var sum uint64
	for _, p := range v {
		if p.Bytes != p.Packets*uint64(len(r.frame)) {
			return 0, fmt.Errorf("a counter has %d bytes of %d packets of %d", p.Bytes, p.Packets, len(r.frame))
		}
		sum += p.Packets
	}
	return sum, nil
}

// run runs a program n times.
func (r *rig) run(program string, n int) error {
	_, err := r.coll.Programs[program].Run(&ebpf.RunOptions{Data: r.frame, Repeat: uint32(n)})
	if err != nil {
		return fmt.Errorf("running %s: %w", program, err)
	}
	return nil
}

func (r *rig) side(program string) bench.Side {
	return func(_ context.Context, n int) (float64, error) {
		var err error
		ns, terr := bench.Timed(bench.ThreadCPU, func(n int) {
			err = bench.WithoutSignals(func() error { return r.run(program, n) })
		})(nil, n)
		return ns, errors.Join(err, terr)
	}
}

// rule matches the 5-tuple of a frame, on ingress.
func rule(frame []byte, counter uint32) xdp.Rule {
	r := xdp.Rule{Counter: counter}
	k, m := &r.Key.Out, &r.Mask.Out
	k.Flags, m.Flags = xdp.FlagIPv4|xdp.FlagL4, xdp.FlagIPv4|xdp.FlagL4|xdp.FlagEgress
	k.Proto, m.Proto = 17, 0xff
	copy(k.L4[:], frame[34:38])
	copy(k.Addr[:8], frame[26:34])
	m.L4 = [4]byte{255, 255, 255, 255}
	for i := range 8 {
		m.Addr[i] = 255
	}
	return r
}
