package xdprows

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/lab/classbench"
	"github.com/flowtally/flowtally/xdp"
)

// Programs that make packets of the trace, by the program behind them. The number of each is its place in trace_next.
const (
	traceOurs = iota
	traceEmpty
	traceLinear
	traceLPM
)

// set is a generated rule set in the kernel, and a trace.
type set struct {
	rules    *xdp.Datapath
	ours     *ebpf.Collection // the classifier, of the bench's object
	trace    *ebpf.Collection
	counters []uint32 // of the rules, in their order
	frame    []byte
}

// newSet loads rules and the trace.
func newSet(rules []classbench.Rule, packets []classbench.Packet) (_ *set, err error) {
	s := &set{frame: packets[0].Frame()}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.rules, s.counters, err = install(rules); err != nil {
		return nil, err
	}
	if s.ours, err = loadOurs(s.rules); err != nil {
		return nil, err
	}
	return s, s.loadTrace(packets)
}

// install opens a rule set and adds rules to it, the first with the highest priority.
func install(rules []classbench.Rule) (_ *xdp.Datapath, counters []uint32, err error) {
	rs, err := xdp.Open(xdp.Options{MaxRules: max(len(rules)+spares, 1<<16)})
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, rs.Destroy())
		}
	}()
	list := make([]xdp.Rule, len(rules))
	for i := range rules {
		c, err := rs.AllocCounter(fmt.Sprint("rule-", i))
		if err != nil {
			return nil, nil, err
		}
		counters = append(counters, c.ID)
		list[i] = translate(&rules[i], i, c.ID)
	}
	return rs, counters, rs.Add(list...)
}

// translate returns a generated rule as a rule of the classifier, on ingress.
func translate(from *classbench.Rule, order int, counter uint32) xdp.Rule {
	r := xdp.Rule{Counter: counter, Order: uint32(order)}
	k, m := &r.Key.Out, &r.Mask.Out
	k.Flags = xdp.FlagIPv4
	m.Flags = xdp.FlagIPv4 | xdp.FlagEgress
	for i, p := range []classbench.Prefix{from.Src, from.Dst} {
		binary.BigEndian.PutUint32(k.Addr[4*i:], p.Addr)
		binary.BigEndian.PutUint32(m.Addr[4*i:], p.Mask())
	}
	if from.Proto != 0 {
		k.Proto, m.Proto = from.Proto, 0xff
	}

	// One port is in the key, as the first or the second half of L4. A range is beside it.
	ranges := []*xdp.Range{&r.Ports[0].Src, &r.Ports[0].Dst}
	for i, p := range []classbench.Range{from.SrcPort, from.DstPort} {
		if p.Any() {
			continue
		}
		k.Flags |= xdp.FlagL4
		m.Flags |= xdp.FlagL4
		if p.First == p.Last {
			binary.BigEndian.PutUint16(k.L4[2*i:], p.First)
			binary.BigEndian.PutUint16(m.L4[2*i:], 0xffff)
		} else {
			*ranges[i] = xdp.Range{First: p.First, Last: p.Last}
		}
	}
	return r
}

// loadOurs loads the classifier of rs and the empty program.
func loadOurs(rs *xdp.Datapath) (*ebpf.Collection, error) {
	spec, err := loadRows()
	if err != nil {
		return nil, fmt.Errorf("reading the bench's object: %w", err)
	}
	for name := range spec.Programs {
		if name != "flowtally_xdp" && name != "bench_empty" {
			delete(spec.Programs, name)
		}
	}
	delete(spec.Maps, "bench_hash")
	delete(spec.Maps, "bench_values")
	maps, err := rs.Specialize(spec, xdp.HookIngress, 1)
	if err != nil {
		return nil, err
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: maps})
	if err != nil {
		return nil, fmt.Errorf("loading the bench's object: %w", err)
	}
	return coll, nil
}

// loadTrace loads the trace, and its programs in front of ours, of an empty one and of the linear matcher.
func (s *set) loadTrace(packets []classbench.Packet) error {
	spec, err := loadTrace()
	if err != nil {
		return fmt.Errorf("reading the trace's object: %w", err)
	}
	if s.trace, err = ebpf.NewCollection(spec); err != nil {
		return fmt.Errorf("loading the trace's object: %w", err)
	}

	behind := []*ebpf.Program{
		traceOurs:   s.ours.Programs["flowtally_xdp"],
		traceEmpty:  s.trace.Programs["trace_empty"],
		traceLinear: s.trace.Programs["trace_linear"],
	}
	for i, p := range behind {
		if err := s.putBehind(i, p); err != nil {
			return err
		}
	}

	keys := make([]uint32, tracePackets)
	values := make([]tracePacket, tracePackets)
	for i := range keys {
		keys[i] = uint32(i)
		values[i] = inTrace(packets[i%len(packets)])
	}
	if _, err := s.trace.Maps["trace_packets"].BatchUpdate(keys, values, nil); err != nil {
		return fmt.Errorf("filling the trace: %w", err)
	}
	return nil
}

// putBehind makes the program of the trace with the number which jump to p.
func (s *set) putBehind(which int, p *ebpf.Program) error {
	if err := s.trace.Maps["trace_next"].Put(uint32(which), p); err != nil {
		return fmt.Errorf("putting a program behind the trace: %w", err)
	}
	return nil
}

// tracePacket is struct trace_packet.
type tracePacket struct {
	Addresses [8]byte
	Ports     [4]byte
	Proto     uint32
}

func inTrace(p classbench.Packet) (t tracePacket) {
	binary.BigEndian.PutUint32(t.Addresses[:], p.Src)
	binary.BigEndian.PutUint32(t.Addresses[4:], p.Dst)
	binary.BigEndian.PutUint16(t.Ports[:], p.SrcPort)
	binary.BigEndian.PutUint16(t.Ports[2:], p.DstPort)
	t.Proto = uint32(p.Proto)
	return t
}

func (s *set) close() error {
	for _, c := range []*ebpf.Collection{s.trace, s.ours} {
		if c != nil {
			c.Close()
		}
	}
	if s.rules != nil {
		return s.rules.Destroy()
	}
	return nil
}

// hot runs a program of the classifier's object over the frame.
func (s *set) hot(program string) bench.Side { return repeated(s.ours.Programs[program], s.frame) }

// spread runs one of the programs behind the trace over its packets.
func (s *set) spread(which int) bench.Side {
	return repeated(s.trace.Programs[fmt.Sprint("trace_", which)], s.frame)
}

// repeated runs a program n times over one buffer, in one system call.
func repeated(p *ebpf.Program, frame []byte) bench.Side {
	return timed(func(_ context.Context, n int) error {
		verdict, err := p.Run(&ebpf.RunOptions{Data: frame, Repeat: uint32(n)})
		if err != nil {
			return fmt.Errorf("running a program %d times: %w", n, err)
		}
		if verdict != verdictPass {
			return fmt.Errorf("running a program %d times: verdict %d", n, verdict)
		}
		return nil
	})
}

const verdictPass = 2 // XDP_PASS
