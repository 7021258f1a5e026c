package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/ibv/flexio"
)

// collapsed are two queue pairs of an mlx5 device that write to each other. The completion queue of each is one entry,
// which the device overwrites, so there is nothing to poll. ibv_create_qp takes no such queue: DevX makes the queue
// pairs.
type collapsed struct {
	qps     [2]*ibv.DevXQP
	entries [2]*flexio.Collapsed
	counted [2]uint64 // completions of each that are in the words
	words   counted
	mr      *ibv.MR
}

// newCollapsed makes the queue pairs, and their counters in the words.
func newCollapsed(dev *ibv.Context, w counted, o options, closing func(io.Closer)) (*collapsed, error) {
	dx, err := dev.DevX()
	if err != nil {
		return nil, err
	}
	closing(dx)
	pd, err := dx.AllocPD()
	if err != nil {
		return nil, err
	}
	closing(pd)
	c := &collapsed{words: w}
	if c.mr, err = pd.AllocMR(4096, ibv.AccessLocalWrite|ibv.AccessRemoteWrite); err != nil {
		return nil, err
	}
	closing(c.mr)
	uar, err := dx.AllocUAR()
	if err != nil {
		return nil, err
	}
	closing(uar)
	eqn, err := dx.QueryEQN(0) // a completion queue must name one, although it sends no event
	if err != nil {
		return nil, err
	}

	for i := range c.qps {
		// The entry of 64 bytes, and behind it the doorbell record, which nobody moves.
		mem, err := dx.AllocUMEM(128)
		if err != nil {
			return nil, err
		}
		closing(mem)
		entry, err := flexio.NewCollapsed(mem.Bytes()[:64], flexio.CollapsedOptions{Depth: depth})
		if err != nil {
			return nil, err
		}
		entry.Init()
		c.entries[i] = entry

		cq, err := dx.CreateCQ(ibv.DevXCQOptions{UMEM: mem, Doorbell: 64, UAR: uar, EQN: eqn, Collapsed: true, IgnoreOverrun: true})
		if err != nil {
			return nil, err
		}
		closing(cq)
		if c.qps[i], err = dx.CreateQP(pd, ibv.DevXQPOptions{SendCQ: cq, RecvCQ: cq, UAR: uar, MaxSendWR: depth, MaxRecvWR: 1}); err != nil {
			return nil, err
		}
		closing(c.qps[i])
	}

	path, err := way(dev, o.gidIndex)
	if err != nil {
		return nil, err
	}
	for i, q := range c.qps {
		if err := connect(dev, q, c.qps[1-i].Number(), path); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// write posts count writes of each queue pair, without end if count is 0, and waits until all have completed.
func (c *collapsed) write(count int) error {
	one := ibv.SendWR{
		Opcode:     ibv.WRRDMAWrite,
		SGE:        ibv.SGE{Addr: c.mr.Addr(), Length: 64, LKey: c.mr.LKey()},
		RemoteAddr: c.mr.Addr() + 1024,
		RKey:       c.mr.RKey(),
	}
	var requests [depth]ibv.SendWR
	for i := range requests {
		requests[i] = one
	}

	for open := true; open; {
		open = false
		for i, q := range c.qps {
			posted, _ := q.Posted()
			if err := c.count(i, posted); err != nil {
				return fmt.Errorf("queue pair %d: %w", q.Number(), err)
			}
			q.Free(c.counted[i], 0) // their slots are used again

			n := depth - int(posted-c.counted[i])
			if count > 0 {
				n = min(n, count-int(posted))
			}
			if _, err := q.PostSend(requests[:n]); err != nil {
				return err
			}
			open = open || count == 0 || c.counted[i] < uint64(count)
		}
		runtime.Gosched()
	}
	return nil
}

// count counts the completions of a queue pair that has posted so many requests.
//
// An error ends the collapse. If the entry shows the cause, all requests before it have succeeded. Otherwise nobody knows
// which of them did, and the words get none of them.
func (c *collapsed) count(i int, posted uint64) error {
	now := c.entries[i].SampleUpTo(func() uint64 { return posted })
	fresh := now.Completed - c.counted[i]
	switch {
	case now.Ambiguous:
		return errors.New("its entry names a request that is not outstanding")
	case now.Errors == 0:
		c.words.Add(fresh, 0)
		c.counted[i] = now.Completed
		return nil
	case fresh > 1 && !showsCause(now.Last.Syndrome):
		c.words.Add(0, 1)
		return fmt.Errorf("%w; the results of %d requests before it are unknown", now.Last, fresh-1)
	}
	c.words.Add(fresh-1, 1)
	return now.Last
}

// showsCause reports whether an entry in error is that of the request that failed first. A flush is of a later request,
// and may have overwritten it. An entry in error without a syndrome tells nothing.
func showsCause(s flexio.Syndrome) bool { return s != 0 && s != flexio.SyndromeWRFlush }
