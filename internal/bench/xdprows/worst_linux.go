package xdprows

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/lab/classbench"
	"github.com/flowtally/flowtally/xdp"
)

// openWorst runs the whole program over the worst packet of a set that a search finds.
func openWorst(generate func() worstInput) opener {
	return lazily(func() opener {
		in := generate()
		return func(context.Context, bench.Env) (*bench.Sides, error) {
			return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
				s, _, err := in.open(open)
				if err != nil {
					return nil, err
				}
				return &bench.Sides{
					Ours:  s.hot("flowtally_xdp"),
					Ref:   s.hot("bench_empty"),
					N:     worstRuns,
					Turns: 4,
				}, nil
			})
		}
	})
}

// openWorstChosen measures the cost above the empty program of the worst packet of rules that somebody chose, against the
// linear matcher that compares the same packet, as UDP, with each of the rules, and finds none.
func openWorstChosen(generate func() worstInput) opener {
	return lazily(func() opener {
		in := generate()
		return func(context.Context, bench.Env) (*bench.Sides, error) {
			return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
				s, p, err := in.open(open)
				if err != nil {
					return nil, err
				}
				if err := s.loadTrace([]classbench.Packet{p}); err != nil {
					return nil, err
				}
				open.Add(func() error { s.trace.Close(); return nil })
				if err := s.fillLinear(scatteredInLinear(in.scattered)); err != nil {
					return nil, err
				}
				unmatched := p
				unmatched.Proto = 17
				return &bench.Sides{
					Ours:  s.hot("flowtally_xdp"),
					Base:  s.hot("bench_empty"),
					Ref:   repeated(s.trace.Programs["trace_linear"], unmatched.Frame()),
					N:     worstRuns,
					Turns: 4,
				}, nil
			})
		}
	})
}

// open opens the set with the worst packet that a search finds.
func (in worstInput) open(open *bench.Closers) (*set, classbench.Packet, error) {
	m, err := xdp.NewModel(in.list(), 1<<16, 0, true)
	if err != nil {
		return nil, classbench.Packet{}, err
	}
	p, steps := worstPacket(m, in.start())
	if bound := m.Worst()[classIPv4].Steps(); steps > bound {
		return nil, p, fmt.Errorf("a packet touches %d nodes and rules, and the bound is %d", steps, bound)
	}
	s, err := openRules(open, in.list(), p.Frame())
	return s, p, err
}

// worstRuns of a program in one system call: a packet takes up to 10 µs.
const worstRuns = 1 << 13

const classIPv4 = 1 // place in Model.Worst

// list returns the rules of the classifier, the first with the highest priority.
func (in worstInput) list() []xdp.Rule {
	list := make([]xdp.Rule, 0, len(in.rules)+len(in.scattered))
	for i := range in.rules {
		list = append(list, translate(&in.rules[i], i, 0))
	}
	for i := range in.scattered {
		list = append(list, translateScattered(&in.scattered[i], i))
	}
	return list
}

// start returns packets from which the search begins.
func (in worstInput) start() []classbench.Packet {
	if len(in.rules) > 0 {
		return classbench.Points(in.rules, searched, seed)
	}
	packets := make([]classbench.Packet, 0, searched)
	for i := range searched {
		r := &in.scattered[i*len(in.scattered)/searched]
		packets = append(packets, classbench.Packet{Src: r.Src, Dst: r.Dst, SrcPort: r.SrcPort.First, DstPort: r.DstPort.First, Proto: 6})
	}
	return append(packets, classbench.Packet{Proto: 6})
}

// searched packets are where the search for the worst packet begins. From each it takes so many steps.
const (
	searched    = 24
	searchSteps = 400
)

// worstPacket searches the packet that touches most: from each of packets it changes bits and ports, and keeps a change
// that makes the path longer.
func worstPacket(m *xdp.Model, packets []classbench.Packet) (worst classbench.Packet, steps int) {
	g := rand.New(rand.NewPCG(seed, 1))
	touched := func(p classbench.Packet) int {
		k := keyOf(p)
		_, _, w := m.Find(&k)
		return w.Path.Steps()
	}
	port := func() uint16 { return []uint16{0, 1, 65535, uint16(g.IntN(1 << 16))}[g.IntN(4)] }
	for _, p := range packets {
		most := touched(p)
		for range searchSteps {
			q := p
			switch g.IntN(4) {
			case 0:
				q.Src ^= 1 << g.IntN(32)
			case 1:
				q.Dst ^= 1 << g.IntN(32)
			case 2:
				q.SrcPort = port()
			default:
				q.DstPort = port()
			}
			if n := touched(q); n >= most {
				p, most = q, n
			}
		}
		if most > steps {
			worst, steps = p, most
		}
	}
	return worst, steps
}

// keyOf is the key that the parser makes of a packet's frame.
func keyOf(p classbench.Packet) (k xdp.Key) {
	h := &k.Out
	h.Flags, h.Proto, h.Next, h.TTL = xdp.FlagEth|xdp.FlagIPv4, p.Proto, p.Proto, 64
	binary.BigEndian.PutUint32(h.Addr[0:], p.Src)
	binary.BigEndian.PutUint32(h.Addr[4:], p.Dst)
	if p.Proto == 6 || p.Proto == 17 {
		h.Flags |= xdp.FlagL4
		binary.BigEndian.PutUint16(h.L4[0:], p.SrcPort)
		binary.BigEndian.PutUint16(h.L4[2:], p.DstPort)
	}
	return k
}

// translateScattered returns a scattered filter as a rule of the classifier.
func translateScattered(from *classbench.Scattered, order int) xdp.Rule {
	r := xdp.Rule{Order: uint32(order)}
	k, m := &r.Key.Out, &r.Mask.Out
	k.Flags, m.Flags = xdp.FlagIPv4|xdp.FlagL4, xdp.FlagIPv4|xdp.FlagL4
	k.Proto, m.Proto = 6, 0xff
	for i, v := range [][2]uint32{{from.Src, from.SrcMask}, {from.Dst, from.DstMask}} {
		binary.BigEndian.PutUint32(k.Addr[4*i:], v[0])
		binary.BigEndian.PutUint32(m.Addr[4*i:], v[1])
	}
	if !from.SrcPort.Any() {
		r.Ports[0].Src = xdp.Range(from.SrcPort)
	}
	if !from.DstPort.Any() && from.DstPort != (classbench.Range{}) {
		r.Ports[0].Dst = xdp.Range(from.DstPort)
	}
	return r
}

// openRules opens a set of rules that share a counter, and a frame.
func openRules(open *bench.Closers, list []xdp.Rule, frame []byte) (*set, error) {
	rs, err := xdp.Open(xdp.Options{MaxRules: 1 << 16})
	if err != nil {
		return nil, err
	}
	open.Add(rs.Destroy)
	c, err := rs.AllocCounter("rules")
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i].Counter = c.ID
	}
	if err := rs.Add(list...); err != nil {
		return nil, err
	}
	ours, err := loadOurs(rs)
	if err != nil {
		return nil, err
	}
	open.Add(func() error { ours.Close(); return nil })
	return &set{rules: rs, ours: ours, frame: frame}, nil
}

// openExtensions runs the whole program over an IPv6 packet with eight extension headers, against one without.
func openExtensions(context.Context, bench.Env) (*bench.Sides, error) {
	return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
		var r xdp.Rule
		r.Key.Out.Flags, r.Mask.Out.Flags = xdp.FlagIPv6|xdp.FlagL4, xdp.FlagIPv6|xdp.FlagL4
		r.Key.Out.Proto, r.Mask.Out.Proto = 17, 0xff
		binary.BigEndian.PutUint16(r.Key.Out.L4[2:], 53)
		binary.BigEndian.PutUint16(r.Mask.Out.L4[2:], 0xffff)
		plain, err := openRules(open, []xdp.Rule{r}, ipv6())
		if err != nil {
			return nil, err
		}
		long := &set{rules: plain.rules, ours: plain.ours, frame: ipv6Extended(8)}
		ours, ref := long.hot("flowtally_xdp"), plain.hot("flowtally_xdp")
		counter := plain.rules.Counters()[0].ID
		open.Add(func() error {
			var v [1]xdp.Pair
			if err := plain.rules.Read([]uint32{counter}, v[:]); err != nil {
				return err
			}
			if v[0].Packets%runs != 0 || v[0].Packets == 0 {
				return errors.New("packets with extension headers were not counted")
			}
			return nil
		})
		return &bench.Sides{
			Ours:  ours,
			Ref:   ref,
			N:     runs,
			Turns: 4,
		}, nil
	})
}
