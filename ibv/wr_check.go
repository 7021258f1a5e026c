package ibv

import (
	"errors"
	"fmt"
)

// opcodesByType is the table of ibv_post_send(3). Bit n is set if the type supports opcode n.
var opcodesByType = map[QPType]uint32{
	QPTRawPacket: 1 << WRSend,
	QPTUD:        1<<WRSend | 1<<WRSendWithImm,
	QPTRC:        1<<WRSend | 1<<WRSendWithImm | 1<<WRRDMAWrite | 1<<WRRDMAWriteWithImm | 1<<WRRDMARead,
	QPTSRD:       1<<WRSend | 1<<WRSendWithImm | 1<<WRRDMAWrite | 1<<WRRDMAWriteWithImm | 1<<WRRDMARead,
}

// datagrams reports whether every request on a queue pair of this type must name a destination.
func (t QPType) datagrams() bool { return t == QPTUD || t == QPTSRD }

// Errors of checkSend. Given such a request, a provider would follow an invalid pointer.
var (
	errNoAH      = errors.New("a datagram without an address handle: set AH")
	errAH        = errors.New("an address handle on a queue pair that is not UD or SRD: leave AH nil")
	errAHDomain  = errors.New("the address handle belongs to another protection domain: make it in that of the queue pair")
	errInline    = errors.New("inline data outside of its memory region")
	errInlineGet = errors.New("inline data of an RDMA read, which sends none: clear SendInline")
)

// checkSend returns an error if w must not reach a provider. mr is the region of its inline data.
func (q *QP) checkSend(w *SendWR, mr *MR) error {
	switch {
	case w.Opcode > WRRDMARead || opcodesByType[q.typ]>>w.Opcode&1 == 0:
		return fmt.Errorf("a queue pair of type %v does not post %v", q.typ, w.Opcode)
	case w.AH == nil && q.typ.datagrams():
		return errNoAH
	case w.AH != nil && !q.typ.datagrams():
		return errAH
	case w.AH != nil && w.AH.pd != q.pd:
		return errAHDomain
	case w.Flags&SendInline != 0 && w.Opcode == WRRDMARead:
		return errInlineGet
	case w.inline() && !mr.contains(w.SGE):
		return errInline
	}
	return nil
}

// useRegion returns the region with a key. The caller must call done on it.
func (p *PD) useRegion(lkey uint32) (*MR, error) {
	if m, ok := p.regionByLKey.Load(lkey); ok && m.(*MR).use() == nil {
		return m.(*MR), nil
	}
	return nil, fmt.Errorf("%w: no region has lkey %#x", errInline, lkey)
}

// contains reports whether s lies within m. It avoids sums, because Addr plus Length may overflow.
func (m *MR) contains(s SGE) bool {
	size := uint64(len(m.mem))
	if s.Addr < m.reg.addr {
		return false
	}
	offset := s.Addr - m.reg.addr
	return offset <= size && uint64(s.Length) <= size-offset
}
