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
func (s *set) fillLinear(rules []classbench.Rule) error {
	chunks := (len(rules) + linearChunk - 1) / linearChunk
	values := make([][linearChunk]linearRule, chunks)
	for i := range chunks * linearChunk {
		r := linearRule{SrcFirst: 1} // matches no packet: the first port of its range is behind the last
		if i < len(rules) {
			r = inLinear(&rules[i], uint32(i))
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

func inLinear(from *classbench.Rule, counter uint32) linearRule {
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
