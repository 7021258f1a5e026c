package engine

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/probe"
	"github.com/flowtally/flowtally/ibv"
)

// cntrCensus has the device count: one completion counter (ibv_create_comp_cntr) for each
// tally, in memory of the library. On EFA reading one is a load; what it costs on another device
// nobody says, so they are read once in readPeriodMin.
type cntrCensus struct {
	cntrs []compCntr
	limit uint64 // a counter goes on at 0 past it
	next  int64  // when they are to be read again
}

// compCntr is a completion counter and the two values that it showed last.
type compCntr struct {
	*ibv.CompCntr
	seen Pair
}

func openCompCntrs(q *queuePair, e *endpoint) (_ census, mode string, err error) {
	caps, err := e.ctx.QueryCompCntrCaps()
	if err != nil {
		return nil, "", err
	}
	if caps.MaxValue == 0 {
		return nil, "", fmt.Errorf("asking for its completion counters: they end at 0: %w", syscall.EPROTO)
	}
	c := &cntrCensus{limit: caps.MaxValue}
	defer func() {
		if err != nil { // the queue pair goes first
			err = errors.Join(err, e.qp.Close(), c.Close())
		}
	}()
	for _, t := range q.tallies {
		ops := opsOf(t.cfg)
		if lacking := ops &^ caps.SupportedQPAttachOps; lacking != 0 {
			return nil, "", &probe.UnsupportedError{
				Feature: "a completion counter of " + lacking.String(), Object: q.cfg.Device,
				Reason: "the device counts " + caps.SupportedQPAttachOps.String(),
			}
		}
		k, err := e.ctx.CreateCompCntr(ibv.CompCntrOptions{Type: ibv.CompCntrTypeWRs})
		if err != nil {
			return nil, "", err
		}
		c.cntrs = append(c.cntrs, compCntr{CompCntr: k})
		if c.cntrs[len(c.cntrs)-1].seen, err = readCntr(k); err != nil {
			return nil, "", err
		}
		if err := e.qp.AttachCompCntr(k, ops); err != nil {
			return nil, "", err
		}
	}
	return c, sourceCompCntr, nil
}

// opsOf is the op mask of a counter: an operation's bit is its place among all of them.
func opsOf(k dataplane.CompletionCounter) (ops ibv.CompCntrOps) {
	for _, op := range k.Operations {
		ops |= 1 << slices.Index(dataplane.Operations(), op)
	}
	return ops
}

func readCntr(k *ibv.CompCntr) (p Pair, err error) {
	if p.Packets, err = k.Read(); err != nil {
		return p, err
	}
	p.Bytes, err = k.ReadErr()
	return p, err
}

func (c *cntrCensus) count(_ []ibv.WC, totals []Pair, at int64, last bool) (bool, error) {
	if at < c.next && !last {
		return false, nil
	}
	for i := range c.cntrs {
		k := &c.cntrs[i]
		now, err := readCntr(k.CompCntr)
		if err != nil {
			return false, err
		}
		totals[i] = add(totals[i], Pair{
			Packets: stepOf(k.seen.Packets, now.Packets, c.limit), Bytes: stepOf(k.seen.Bytes, now.Bytes, c.limit),
		})
		k.seen = now
	}
	c.next = at + int64(readPeriodMin)
	return true, nil
}

// stepOf is how far a counter went that goes on at 0 past limit. It is read so often that it
// cannot have come round twice.
func stepOf(before, now, limit uint64) uint64 {
	if now >= before {
		return now - before
	}
	return limit - before + now + 1
}

// Close destroys the counters, which the queue pair held.
func (c *cntrCensus) Close() error {
	var errs []error
	for _, k := range c.cntrs {
		errs = append(errs, k.CompCntr.Close())
	}
	c.cntrs = nil
	return errors.Join(errs...)
}
