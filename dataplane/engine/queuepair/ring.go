package queuepair

import (
	"fmt"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/ibv/flexio"
)

// ringSource counts the entries of an mlx5 completion queue in its ring. The worker must still call ibv_poll_cq:
// there libmlx5 frees the slots of the send and receive queues, and lets the device reuse entries. A polled entry
// stays readable for another round of the ring, because createQueues makes the ring larger than the number of
// operations that can be outstanding.
type ringSource struct {
	ring   *flexio.Ring
	index  *counterIndex
	entry  flexio.CQE64
	taken  uint32         // number of polled entries, mod 2^32 like Ring.Consumed
	polled []backend.Pair // totals of the polled entries
}

func openRing(e *endpoint) (completionSource, string, error) {
	if err := e.refuseRemote(); err != nil {
		return nil, "", err
	}
	m, err := e.cq.MLX5Ring()
	if err != nil {
		return nil, "", err
	}
	ring, err := flexio.NewRing(m.Buf, flexio.RingOptions{EntrySize: m.CQESize})
	if err != nil {
		return nil, "", err
	}
	return &ringSource{ring: ring, index: &e.index, polled: e.polled}, modeRing, nil
}

func (s *ringSource) count(done []ibv.WC, totals []backend.Pair, at int64, last bool) (bool, error) {
	if _, err := (pollSource{s.index}).count(done, s.polled, at, last); err != nil {
		return false, err
	}
	s.taken += uint32(len(done))
	if err := s.readEntries(totals); err != nil {
		raiseTo(totals, s.polled)
		return false, fmt.Errorf("reading the ring of its completion queue: %w", err)
	}
	return true, nil
}

// readEntries counts the entries written by the device since the last call.
func (s *ringSource) readEntries(totals []backend.Pair) error {
	for {
		found, err := s.ring.Next(&s.entry)
		if err != nil {
			return err
		}
		if !found {
			// A polled entry was in the ring before we looked, so we must have seen it.
			if missed := int32(s.taken - s.ring.Consumed()); missed > 0 {
				return fmt.Errorf("%d entries returned by ibv_poll_cq were not in it", missed)
			}
			return nil
		}

		op, ok := ringOperation(&s.entry)
		if op < 0 {
			return fmt.Errorf("entry %d completes no posted operation: opcode %v, WQE opcode %#x", s.ring.Consumed()-1, s.entry.OpOwn.Opcode(), s.entry.SopRdrop)
		}
		s.index.add(totals, op, ok)
	}
}

func (*ringSource) hideWords() error { return nil }
func (*ringSource) Close() error     { return nil }

// The opcodes of send requests, MLX5_OPCODE_* of mlx5dv.h. An entry contains the opcode of its request in front
// of the number of the queue pair (s_wqe_opcode).
const (
	wqeRDMAWrite    = 0x08
	wqeRDMAWriteImm = 0x09
	wqeSend         = 0x0a
	wqeSendImm      = 0x0b
	wqeRDMARead     = 0x10
)

// ringOperation returns the kind of operation completed by an entry, or -1 for one that we never post. ok is false
// for a completion in error.
func ringOperation(e *flexio.CQE64) (op int, ok bool) {
	switch code := e.OpOwn.Opcode(); code {
	case flexio.OpReq, flexio.OpReqErr:
		ok = code == flexio.OpReq
		switch e.SopRdrop {
		case wqeSend, wqeSendImm:
			return opSend, ok
		case wqeRDMAWrite, wqeRDMAWriteImm:
			return opRDMAWrite, ok
		case wqeRDMARead:
			return opRDMARead, ok
		}
	case flexio.OpRespWrImm, flexio.OpRespSend, flexio.OpRespImm, flexio.OpRespInv:
		return opRecv, true
	case flexio.OpRespErr:
		return opRecv, false
	}
	return -1, false
}
