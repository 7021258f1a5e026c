package engine

import (
	"fmt"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/ibv/flexio"
)

// ringCensus counts the entries of an mlx5 completion queue where the device wrote them. It
// looks on: libmlx5 frees the slots of the send and receive queues, and lets the device
// write on, only where ibv_poll_cq takes the completions. The entries that it took are
// there until the device has got round, which the size of the queue (queues) keeps it from.
type ringCensus struct {
	ring   *flexio.Ring
	feeds  *feeding
	entry  flexio.CQE64
	taken  uint32         // entries that ibv_poll_cq took, as Ring.Consumed counts
	polled []backend.Pair // the totals by them
}

func openRing(q *queuePair, e *endpoint) (census, string, error) {
	if err := q.local(); err != nil {
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
	return &ringCensus{ring: ring, feeds: &q.feeds, polled: e.polled}, sourceRing, nil
}

func (c *ringCensus) count(done []ibv.WC, totals []backend.Pair, at int64, last bool) (bool, error) {
	if _, err := (pollCensus{c.feeds}).count(done, c.polled, at, last); err != nil {
		return false, err
	}
	c.taken += uint32(len(done))
	if err := c.walk(totals); err != nil {
		atLeast(totals, c.polled)
		return false, fmt.Errorf("reading the ring of its completion queue: %w", err)
	}
	return true, nil
}

func (c *ringCensus) walk(totals []backend.Pair) error {
	for {
		found, err := c.ring.Next(&c.entry)
		if err != nil {
			return err
		}
		if !found {
			// What was taken was there to be seen.
			if missed := int32(c.taken - c.ring.Consumed()); missed > 0 {
				return fmt.Errorf("%d entries that ibv_poll_cq took were not seen there", missed)
			}
			return nil
		}
		op, ok := ringOperation(&c.entry)
		if op < 0 {
			return fmt.Errorf("entry %d is of no operation: %v, WQE opcode %#x", c.ring.Consumed()-1, c.entry.OpOwn.Opcode(), c.entry.SopRdrop)
		}
		c.feeds.add(totals, op, ok)
	}
}

func (*ringCensus) leave() error { return nil }
func (*ringCensus) Close() error { return nil }

// The opcodes of send requests, MLX5_OPCODE_* of mlx5dv.h: an entry has that of its request
// before the number of the queue pair (s_wqe_opcode).
const (
	wqeRDMAWrite    = 0x08
	wqeRDMAWriteImm = 0x09
	wqeSend         = 0x0a
	wqeSendImm      = 0x0b
	wqeRDMARead     = 0x10
)

// ringOperation says what an entry completes, and whether without an error; -1: nothing that
// is posted here.
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
