package queuepair

import (
	"fmt"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/ibv/flexio"
)

// ringSource counts the entries of an mlx5 completion queue where the device wrote them. The worker
// still calls ibv_poll_cq, because only there does libmlx5 free the slots of the send and receive queues and
// let the device write on. An entry stays readable after it was polled: the device overwrites it one round
// of the queue later, and createQueues makes the queue larger than all that can be outstanding.
type ringSource struct {
	ring   *flexio.Ring
	index  *counterIndex
	entry  flexio.CQE64
	taken  uint32         // entries that ibv_poll_cq returned, as Ring.Consumed counts
	polled []backend.Pair // totals of those entries
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

// readEntries counts the entries that the device has written since the last call.
func (s *ringSource) readEntries(totals []backend.Pair) error {
	for {
		found, err := s.ring.Next(&s.entry)
		if err != nil {
			return err
		}
		if !found {
			// What ibv_poll_cq returned was in the ring before, so it must have been seen by now.
			if missed := int32(s.taken - s.ring.Consumed()); missed > 0 {
				return fmt.Errorf("%d entries that ibv_poll_cq took were not seen there", missed)
			}
			return nil
		}

		op, ok := ringOperation(&s.entry)
		if op < 0 {
			return fmt.Errorf("entry %d is of no operation: %v, WQE opcode %#x", s.ring.Consumed()-1, s.entry.OpOwn.Opcode(), s.entry.SopRdrop)
		}
		s.index.add(totals, op, ok)
	}
}

func (*ringSource) hideWords() error { return nil }
func (*ringSource) Close() error     { return nil }

// The opcodes of send requests, MLX5_OPCODE_* of mlx5dv.h. An entry holds the opcode of its request
// before the number of the queue pair (s_wqe_opcode).
const (
	wqeRDMAWrite    = 0x08
	wqeRDMAWriteImm = 0x09
	wqeSend         = 0x0a
	wqeSendImm      = 0x0b
	wqeRDMARead     = 0x10
)

// ringOperation returns the kind of operation that an entry completes, or -1 for a kind that is not
// posted here. ok is false for a completion in error.
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
