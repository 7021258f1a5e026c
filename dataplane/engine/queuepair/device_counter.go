package queuepair

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/shm/words"
)

// deviceCounters is the source in which the device counts: one completion counter
// (ibv_create_comp_cntr) for each counter of the queue pair. With libefa the device counts in the mirror's
// device segment, and readers load the words there themselves. Otherwise it counts in memory of the library,
// which is read once in backend.ReadPeriodMin: on EFA a read is a load, elsewhere its cost is unknown.
type deviceCounters struct {
	mirror   Mirror
	counters []*counter
	cntrs    []compCntr // of counters, in their order
	limit    uint64     // the counters wrap to 0 past it
	index    *counterIndex

	nextRead int64          // time of the next read
	unread   uint64         // completions polled since the last read
	polled   []backend.Pair // totals of the completions that ibv_poll_cq returned
	lagSince int64          // since when the counters show less than polled; 0: they do not
}

// compCntr is a completion counter of the device, and its last value or its words in the mirror.
type compCntr struct {
	deviceCounter
	last backend.Pair
	slot *shm.DeviceSlot // nil: the counter is in memory of the library
	base backend.Pair    // total of earlier processes, which the words include
}

// deviceCounter is the part of ibv.CompCntr that counting uses.
type deviceCounter interface {
	Read() (uint64, error)
	ReadErr() (uint64, error)
	Close() error
}

// leastLimit is the smallest limit of counters in the mirror, and of counters of the peer's operations: one poll cycle
// must not suffice to count half of it.
const leastLimit = words.LeastLimit

// openDeviceCounters makes a counter of the device for each counter of the queue pair, and attaches it. All of them
// count in the mirror if the first can, otherwise all in the library.
func openDeviceCounters(e *endpoint) (_ completionSource, mode string, err error) {
	caps, err := e.ctx.QueryCompCntrCaps()
	if err != nil {
		return nil, "", err
	}
	if most := uint64(e.cq.CQE() + wcBatch); caps.MaxValue < 2*most {
		return nil, "", fmt.Errorf("the device's completion counters go on at 0 past %d: with %d completions between two reads they may do so twice: %w",
			caps.MaxValue, most, dataplane.ErrInvalid)
	}

	c := &deviceCounters{
		mirror:   e.set.opts.Mirror,
		counters: e.counters,
		limit:    caps.MaxValue,
		polled:   e.polled,
		index:    &e.index,
	}
	defer func() {
		if err != nil { // the queue pair holds the counters, so it goes first
			err = errors.Join(err, e.qp.Close(), c.Close())
		}
	}()

	first, notExternal := c.firstInMirror(e)
	if notExternal != nil {
		e.reject(modeExternal, notExternal)
	}
	for i, counted := range e.counters {
		ops := opsOf(counted.cfg)
		if err := checkCounts(e.cfg.Device, counted.cfg, ops, caps); err != nil {
			return nil, "", err
		}

		k := first
		switch {
		case notExternal != nil:
			k, err = c.inLibrary(e)
		case i > 0:
			k, err = c.inMirror(e)
		}
		if err != nil {
			return nil, "", err
		}
		if err := e.qp.AttachCompCntr(k, ops); err != nil {
			return nil, "", err
		}
	}

	if notExternal != nil {
		return c, modeCompCntr, nil
	}
	if err := c.showWords(); err != nil {
		return nil, "", err
	}
	return c, modeExternal, nil
}

// checkCounts returns why counters of the device cannot count a counter of the configuration, or nil.
func checkCounts(device string, cfg dataplane.CompletionCounter, ops ibv.CompCntrOps, caps ibv.CompCntrCaps) error {
	if lacking := ops &^ caps.SupportedQPAttachOps; lacking != 0 {
		return &probe.UnsupportedError{
			Feature: "a completion counter of " + lacking.String(),
			Object:  device,
			Reason:  "the device has such of " + caps.SupportedQPAttachOps.String(),
		}
	}
	if slices.ContainsFunc(cfg.Operations, dataplane.Operation.Remote) && caps.MaxValue < leastLimit {
		return fmt.Errorf("counter %q: no queue here bounds the operations of the peer, and the device's completion counters go on at 0 past %d, perhaps more than once between two reads: %w",
			cfg.Name, caps.MaxValue, dataplane.ErrInvalid)
	}
	return nil
}

// showWords lets readers of the mirror load the device's words. They show the total of earlier processes and of the
// endpoints before, and go on from there.
func (c *deviceCounters) showWords() error {
	for i, counted := range c.counters {
		k := &c.cntrs[i]
		k.base = counted.base()
		total := backend.Add(k.base, c.polled[i])
		if err := c.mirror.SetDevice(counted.handle, k.slot, total.Packets, total.Bytes, c.limit); err != nil {
			return err
		}
	}
	return nil
}

// firstInMirror makes the first counter in the mirror's device segment, or returns the reason against it.
func (c *deviceCounters) firstInMirror(e *endpoint) (*ibv.CompCntr, error) {
	if len(e.counters) == 0 {
		return nil, errNoCounters
	}
	if err := fitForMirror(c.limit); err != nil {
		return nil, err
	}
	return c.inMirror(e)
}

// fitForMirror returns the reason against counters in the mirror that wrap to 0 past limit, or nil.
func fitForMirror(limit uint64) error {
	if limit < leastLimit {
		return fmt.Errorf("its counters go on at 0 past %d, which is too soon for readers of the words", limit)
	}
	return nil
}

var errNoCounters = errors.New("it feeds no counter")

// inMirror makes a counter in a slot of the device segment, whose words are 0.
func (c *deviceCounters) inMirror(e *endpoint) (*ibv.CompCntr, error) {
	seg, err := c.mirror.DeviceSegment(max(leastSlots, SlotsPerCounter*len(e.set.byID)))
	if err != nil {
		return nil, err
	}
	slot, err := seg.Slot()
	if err != nil {
		return nil, err
	}
	comp, errs := slot.Words()
	k, err := e.ctx.CreateCompCntr(ibv.CompCntrOptions{
		Type:     ibv.CompCntrTypeWRs,
		External: &ibv.CompCntrMemory{Comp: comp, Err: errs},
	})
	if err != nil {
		slot.Free()
		return nil, err
	}
	e.slots = append(e.slots, slot)
	c.cntrs = append(c.cntrs, compCntr{deviceCounter: k, slot: slot})
	return k, nil
}

// The device segment cannot grow. A slot that a lost device may still write to stays in use
// until its context is closed.
const (
	leastSlots = 256
	// SlotsPerCounter is the number of slots of the device segment for each counter.
	SlotsPerCounter = 4
)

// inLibrary makes a counter in memory of the library.
func (c *deviceCounters) inLibrary(e *endpoint) (*ibv.CompCntr, error) {
	k, err := e.ctx.CreateCompCntr(ibv.CompCntrOptions{Type: ibv.CompCntrTypeWRs})
	if err != nil {
		return nil, err
	}
	c.cntrs = append(c.cntrs, compCntr{deviceCounter: k})
	c.cntrs[len(c.cntrs)-1].last, err = readCntr(k)
	return k, err
}

// opsOf returns the op mask of a counter. The bit of an operation is its place in dataplane.Operations.
func opsOf(k dataplane.CompletionCounter) (ops ibv.CompCntrOps) {
	for _, op := range k.Operations {
		ops |= 1 << slices.Index(dataplane.Operations(), op)
	}
	return ops
}

// readCntr returns completions as packets, and errors as bytes.
func readCntr(k deviceCounter) (p backend.Pair, err error) {
	if p.Packets, err = k.Read(); err != nil {
		return p, err
	}
	p.Bytes, err = k.ReadErr()
	return p, err
}

func (c *deviceCounters) count(done []ibv.WC, totals []backend.Pair, at int64, last bool) (bool, error) {
	if _, err := (pollSource{c.index}).count(done, c.polled, at, last); err != nil {
		return false, err
	}

	// Between two reads a counter may count limit at most, because a second wrap would not be seen. What it has
	// counted and ibv_poll_cq has not returned is outstanding, or in the completion queue: less than half of limit
	// (openDeviceCounters). So the polled ones may be the other half.
	c.unread += uint64(len(done))
	if at < c.nextRead && c.unread < c.limit/2 && !last {
		return false, nil
	}

	err := c.read(totals)
	if err == nil {
		err = c.checkLag(totals, at)
	}
	if err != nil {
		raiseTo(totals, c.polled)
		return false, err
	}
	c.nextRead = at + int64(backend.ReadPeriodMin)
	c.unread = 0
	return true, nil
}

// lagBound is how long a device may take to count a completion that ibv_poll_cq has returned. No
// specification says that it counts before it writes the completion.
const lagBound = int64(time.Second)

// checkLag returns an error if the device counts fewer completions than ibv_poll_cq returned. A greater count is no
// error: operations of the peer leave no completion.
func (c *deviceCounters) checkLag(totals []backend.Pair, at int64) error {
	for i, p := range c.polled {
		if t := totals[i]; t.Packets >= p.Packets && t.Bytes >= p.Bytes {
			continue
		}
		if c.lagSince == 0 {
			c.lagSince = at
		}
		if at-c.lagSince < lagBound {
			return nil
		}
		return fmt.Errorf("its completion counter shows %d completions and %d errors, and ibv_poll_cq took off %d and %d: the device does not count every completion",
			totals[i].Packets, totals[i].Bytes, p.Packets, p.Bytes)
	}
	c.lagSince = 0
	return nil
}

// read reads the counters into totals.
func (c *deviceCounters) read(totals []backend.Pair) error {
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

		now, err := readCntr(k.deviceCounter)
		if err != nil {
			return err
		}
		totals[i] = backend.Add(totals[i], backend.Pair{
			Packets: distance(k.last.Packets, now.Packets, c.limit),
			Bytes:   distance(k.last.Bytes, now.Bytes, c.limit),
		})
		k.last = now
	}
	return nil
}

// distance returns how much a counter counted from before to now. The counter wraps to 0 past limit, and
// is read so often that it cannot have wrapped twice.
func distance(before, now, limit uint64) uint64 {
	if now >= before {
		return now - before
	}
	return limit - before + now + 1
}

func (c *deviceCounters) hideWords() error {
	var errs []error
	for i, k := range c.cntrs {
		if k.slot != nil {
			errs = append(errs, c.mirror.ClearDevice(c.counters[i].handle))
		}
	}
	return errors.Join(errs...)
}

// Close destroys the counters. endpoint.close frees their slots, when the device cannot write
// to them any more.
func (c *deviceCounters) Close() error {
	var errs []error
	for _, k := range c.cntrs {
		errs = append(errs, k.deviceCounter.Close())
	}
	return errors.Join(errs...)
}
