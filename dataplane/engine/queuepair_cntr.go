package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/probe"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/shm"
)

// cntrCensus has the device count: one completion counter (ibv_create_comp_cntr) for each
// tally. Where libefa can tell it to, the device counts in the mirror's device segment, and readers
// look there themselves; else in memory of the library, which is read once in
// ReadPeriodMin: on EFA that is a load, and what it costs elsewhere nobody says.
type cntrCensus struct {
	mirror  mirror
	tallies []*tally
	cntrs   []compCntr     // of the tallies, in their order
	limit   uint64         // a counter goes on at 0 past it
	next    int64          // when they are to be read again
	since   uint64         // completions that were taken off since they were
	polled  []backend.Pair // what ibv_poll_cq says the totals are at least
	behind  int64          // since when they are less; 0: they are not
	feeds   *feeding
}

// compCntr is a completion counter and the two values that it showed last, or its words in the
// mirror.
type compCntr struct {
	counter
	seen backend.Pair
	slot *shm.DeviceSlot // nil: in memory of the library
	base backend.Pair    // what the words show beside the tally
}

// counter is what is asked of an ibv.CompCntr once it counts.
type counter interface {
	Read() (uint64, error)
	ReadErr() (uint64, error)
	Close() error
}

// leastLimit is the smallest largest value with which words in the mirror make sense: one
// cycle of the poller must not be enough to come half round.
const leastLimit = 1 << 24

func openCompCntrs(q *queuePair, e *endpoint) (_ census, mode string, err error) {
	caps, err := e.ctx.QueryCompCntrCaps()
	if err != nil {
		return nil, "", err
	}
	if most := uint64(e.cq.CQE() + wcBatch); caps.MaxValue < 2*most {
		return nil, "", fmt.Errorf("the device's completion counters go on at 0 past %d: with %d completions between two reads nobody could tell how often: %w",
			caps.MaxValue, most, dataplane.ErrInvalid)
	}
	c := &cntrCensus{mirror: q.set.mirror, tallies: q.tallies, limit: caps.MaxValue, polled: e.polled, feeds: &q.feeds}
	defer func() {
		if err != nil { // the queue pair, which holds them, goes first
			err = errors.Join(err, e.qp.Close(), c.Close())
		}
	}()
	first, external := c.inMirror(q, e)
	if external != nil {
		e.reject(sourceExternal, external)
	}
	for i, t := range q.tallies {
		ops := opsOf(t.cfg)
		if lacking := ops &^ caps.SupportedQPAttachOps; lacking != 0 {
			return nil, "", &probe.UnsupportedError{
				Feature: "a completion counter of " + lacking.String(), Object: q.cfg.Device,
				Reason: "the device has such of " + caps.SupportedQPAttachOps.String(),
			}
		}
		k := first
		switch {
		case external != nil:
			k, err = c.inLibrary(e)
		case i > 0:
			k, err = c.inWords(q, e)
		}
		if err != nil {
			return nil, "", err
		}
		if err := e.qp.AttachCompCntr(k, ops); err != nil {
			return nil, "", err
		}
	}
	if external != nil {
		return c, sourceCompCntr, nil
	}
	for i, t := range q.tallies {
		k := &c.cntrs[i]
		k.base = backend.Pair{Packets: t.past.BasePackets, Bytes: t.past.BaseBytes}
		stands := backend.Add(k.base, q.totals[i])
		if err := c.mirror.SetDevice(t.handle, k.slot, stands.Packets, stands.Bytes, c.limit); err != nil {
			return nil, "", err
		}
	}
	return c, sourceExternal, nil
}

// inMirror makes the first counter in the mirror's device segment, or says why that cannot be.
func (c *cntrCensus) inMirror(q *queuePair, e *endpoint) (*ibv.CompCntr, error) {
	if len(q.tallies) == 0 {
		return nil, errNoCounters
	}
	if err := fitForWords(c.limit); err != nil {
		return nil, err
	}
	return c.inWords(q, e)
}

// fitForWords says why counters that go on at 0 past limit are not for words in the mirror.
func fitForWords(limit uint64) error {
	if limit < leastLimit {
		return fmt.Errorf("its counters go on at 0 past %d, which is too soon for readers of the words", limit)
	}
	return nil
}

var errNoCounters = errors.New("it feeds no counter")

// inWords makes a counter in a slot of the device segment, whose words are 0.
func (c *cntrCensus) inWords(q *queuePair, e *endpoint) (*ibv.CompCntr, error) {
	seg, err := c.mirror.DeviceSegment(max(leastSlots, slotsPerCounter*len(q.set.byID)))
	if err != nil {
		return nil, err
	}
	slot, err := seg.Slot()
	if err != nil {
		return nil, err
	}
	comp, errs := slot.Words()
	k, err := e.ctx.CreateCompCntr(ibv.CompCntrOptions{Type: ibv.CompCntrTypeWRs, External: &ibv.CompCntrMemory{Comp: comp, Err: errs}})
	if err != nil {
		slot.Free()
		return nil, err
	}
	e.slots = append(e.slots, slot)
	c.cntrs = append(c.cntrs, compCntr{counter: k, slot: slot})
	return k, nil
}

// The segment cannot grow, and a slot that a lost device may still write to is not free
// before its context is closed.
const (
	leastSlots      = 256
	slotsPerCounter = 4
)

// inLibrary makes a counter in memory of the library.
func (c *cntrCensus) inLibrary(e *endpoint) (*ibv.CompCntr, error) {
	k, err := e.ctx.CreateCompCntr(ibv.CompCntrOptions{Type: ibv.CompCntrTypeWRs})
	if err != nil {
		return nil, err
	}
	c.cntrs = append(c.cntrs, compCntr{counter: k})
	c.cntrs[len(c.cntrs)-1].seen, err = readCntr(k)
	return k, err
}

// opsOf is the op mask of a counter: an operation's bit is its place among all of them.
func opsOf(k dataplane.CompletionCounter) (ops ibv.CompCntrOps) {
	for _, op := range k.Operations {
		ops |= 1 << slices.Index(dataplane.Operations(), op)
	}
	return ops
}

func readCntr(k counter) (p backend.Pair, err error) {
	if p.Packets, err = k.Read(); err != nil {
		return p, err
	}
	p.Bytes, err = k.ReadErr()
	return p, err
}

func (c *cntrCensus) count(done []ibv.WC, totals []backend.Pair, at int64, last bool) (bool, error) {
	if _, err := (pollCensus{c.feeds}).count(done, c.polled, at, last); err != nil {
		return false, err
	}
	// What is not in done yet is outstanding, or in the completion queue: less than half of limit.
	if c.since += uint64(len(done)); at < c.next && c.since < c.limit/2 && !last {
		return false, nil
	}
	err := c.read(totals)
	if err == nil {
		err = c.compare(totals, at)
	}
	if err != nil {
		atLeast(totals, c.polled)
		return false, err
	}
	c.next, c.since = at+int64(backend.ReadPeriodMin), 0
	return true, nil
}

// behindBound is how long a device may take to count what ibv_poll_cq took off already:
// nobody says that it counts before it writes the completion.
const behindBound = int64(time.Second)

// compare finds a device that counts less than what completed. That it counts more is
// not seen: operations of the peer leave no completion.
func (c *cntrCensus) compare(totals []backend.Pair, at int64) error {
	for i, p := range c.polled {
		if t := totals[i]; t.Packets >= p.Packets && t.Bytes >= p.Bytes {
			continue
		}
		if c.behind == 0 {
			c.behind = at
		}
		if at-c.behind < behindBound {
			return nil
		}
		return fmt.Errorf("its completion counter shows %d completions and %d errors, and ibv_poll_cq took off %d and %d: the device does not count all that completes",
			totals[i].Packets, totals[i].Bytes, p.Packets, p.Bytes)
	}
	c.behind = 0
	return nil
}

func (c *cntrCensus) read(totals []backend.Pair) error {
	for i := range c.cntrs {
		k := &c.cntrs[i]
		if k.slot != nil {
			comp, errs, err := k.slot.Rebase()
			if err != nil {
				return err
			}
			totals[i] = backend.Sub(backend.Pair{Packets: comp, Bytes: errs}, k.base)
			continue
		}
		now, err := readCntr(k.counter)
		if err != nil {
			return err
		}
		totals[i] = backend.Add(totals[i], backend.Pair{
			Packets: stepOf(k.seen.Packets, now.Packets, c.limit), Bytes: stepOf(k.seen.Bytes, now.Bytes, c.limit),
		})
		k.seen = now
	}
	return nil
}

// stepOf is how far a counter went that goes on at 0 past limit. It is read so often that it
// cannot have come round twice.
func stepOf(before, now, limit uint64) uint64 {
	if now >= before {
		return now - before
	}
	return limit - before + now + 1
}

// leave sends readers of the words back to the ordinary value.
func (c *cntrCensus) leave() error {
	var errs []error
	for i, k := range c.cntrs {
		if k.slot != nil {
			errs = append(errs, c.mirror.ClearDevice(c.tallies[i].handle))
		}
	}
	return errors.Join(errs...)
}

// Close destroys the counters, which the queue pair held. Their slots are given back when
// the device cannot write there any more: see endpoint.close.
func (c *cntrCensus) Close() error {
	var errs []error
	for _, k := range c.cntrs {
		errs = append(errs, k.counter.Close())
	}
	return errors.Join(errs...)
}
