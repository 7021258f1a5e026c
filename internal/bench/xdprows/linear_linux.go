package xdprows

import (
	"encoding/binary"
	"fmt"

	"github.com/flowtally/flowtally/internal/lab/classbench"
)

// linearChunk is the number of rules in an entry of linear_rules.
const linearChunk = 64

// linearRule is struct linear_rule.
type linearRule struct {
	Mask, Value       [8]byte
	SrcFirst, SrcLast uint16
	DstFirst, DstLast uint16
	ProtoMask, Proto  uint16
	Counter           uint32
}

// fillLinear gives the linear matcher the rules, in their order.
func (s *set) fillLinear(rules []linearRule) error {
	chunks := (len(rules) + linearChunk - 1) / linearChunk
	values := make([][linearChunk]linearRule, chunks)
	for i := range chunks * linearChunk {
		r := linearRule{SrcFirst: 1} // matches no packet: the first port of its range is behind the last
		if i < len(rules) {
			r = rules[i]
		}
		values[i/linearChunk][i%linearChunk] = r
	}
	keys := make([]uint32, chunks)
	for i := range keys {
		keys[i] = uint32(i)
	}
	if _, err := s.trace.Maps["linear_rules"].BatchUpdate(keys, values, nil); err != nil {
		return fmt.Errorf("filling the linear matcher: %w", err)
	}
	if err := s.trace.Variables["linear_chunks"].Set(uint32(chunks)); err != nil {
		return fmt.Errorf("filling the linear matcher: %w", err)
	}
	return nil
}

// inLinear returns generated rules as those of the linear matcher. The counter of each is its place.
func inLinear(rules []classbench.Rule) []linearRule {
	list := make([]linearRule, 0, len(rules))
	for i := range rules {
		list = append(list, oneInLinear(&rules[i], uint32(i)))
	}
	return list
}

func oneInLinear(from *classbench.Rule, counter uint32) linearRule {
	r := linearRule{
		SrcFirst: from.SrcPort.First,
		SrcLast:  from.SrcPort.Last,
		DstFirst: from.DstPort.First,
		DstLast:  from.DstPort.Last,
		Proto:    uint16(from.Proto),
		Counter:  counter,
	}
	if from.Proto != 0 {
		r.ProtoMask = 0xff
	}
	for i, p := range []classbench.Prefix{from.Src, from.Dst} {
		binary.BigEndian.PutUint32(r.Value[4*i:], p.Addr)
		binary.BigEndian.PutUint32(r.Mask[4*i:], p.Mask())
	}
	return r
}

// scatteredInLinear returns scattered filters as rules of the linear matcher. The counter of each is its place.
func scatteredInLinear(filters []classbench.Scattered) []linearRule {
	list := make([]linearRule, 0, len(filters))
	for i := range filters {
		f := &filters[i]
		r := linearRule{
			SrcLast:   0xffff,
			DstLast:   0xffff,
			ProtoMask: 0xff,
			Proto:     6,
			Counter:   uint32(i),
		}
		if f.SrcPort != (classbench.Range{}) {
			r.SrcFirst, r.SrcLast = f.SrcPort.First, f.SrcPort.Last
		}
		if f.DstPort != (classbench.Range{}) {
			r.DstFirst, r.DstLast = f.DstPort.First, f.DstPort.Last
		}
		for j, v := range [][2]uint32{{f.Src, f.SrcMask}, {f.Dst, f.DstMask}} {
			binary.BigEndian.PutUint32(r.Value[4*j:], v[0])
			binary.BigEndian.PutUint32(r.Mask[4*j:], v[1])
		}
		list = append(list, r)
	}
	return list
}
