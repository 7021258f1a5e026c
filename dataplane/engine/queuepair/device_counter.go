package queuepair

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/shm/words"
)

// deviceCounters lets the device count, by one completion counter (ibv_create_comp_cntr) for each counter of
// the queue pair. With libefa the device counts in the mirror's device segment, and readers load its words
// themselves. Otherwise it counts in memory of the library. We read this at most once in
// backend.ReadPeriodMin, because only on EFA do we know that a read is cheap: a load.
type deviceCounters struct {
	mirror   Mirror
	counters []*counter
	cntrs    []compCntr // of counters, in their order
	limit    uint64     // the counters wrap to 0 past this value
	index    *counterIndex

	nextRead int64          // time of the next read
	unread   uint64         // completions polled since the last read
	polled   []backend.Pair // totals of the polled completions
	lagSince int64          // time at which the counters fell behind polled; 0 if they are not behind
}

// compCntr is a completion counter of the device. It counts in memory of the library, where last is our last
// reading, or in a slot of the mirror.
type compCntr struct {
	deviceCounter
	last backend.Pair
	slot *shm.DeviceSlot // nil if the counter is in memory of the library
	base backend.Pair    // total of earlier processes, included in the words of slot
}

// deviceCounter is the part of ibv.CompCntr that counting uses.
type deviceCounter interface {
	Read() (uint64, error)
	ReadErr() (uint64, error)
	Close() error
}

// leastLimit is the smallest acceptable limit for counters in the mirror, and for counters of the peer's
// operations. Below it, a device could count half of its range within one poll cycle.
const leastLimit = words.LeastLimit

// openDeviceCounters makes and attaches a counter of the device for each counter of the queue pair. If the first
// one can count in the mirror, all of them do. Otherwise all count in memory of the library.
func openDeviceCounters(e *endpoint) (_ completionSource, mode string, err error) {
	caps, err := e.ctx.QueryCompCntrCaps()
	if err != nil {
		return nil, "", noDeviceCounters(e.cfg.Device, err)
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
		if err != nil { // the queue pair holds the counters, so close it first
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

// noDeviceCounters says of an error of ibv_query_comp_cntr_caps who lacks completion counters: the library, which then
// has no such function, or the device and its driver.
func noDeviceCounters(device string, err error) error {
	lacks := &probe.UnsupportedError{
		Feature: "a completion counter",
		Object:  device,
		Reason:  "the device, or its driver in the kernel, has none",
		Fix:     "use the next best source, which counts the same completions",
	}
	switch {
	case errors.Is(err, syscall.ENOSYS):
		lacks.Reason = "this libibverbs has none, which came with rdma-core 65"
		lacks.Fix = "install rdma-core 65 where the device is an EFA; the next best source counts the same completions"
	case !errors.Is(err, probe.ErrNotSupported):
		return err
	}
	return fmt.Errorf("%w: %w", lacks, err)
}

// checkCounts returns the reason why the device's counters cannot count cfg, or nil.
func checkCounts(device string, cfg dataplane.CompletionCounter, ops ibv.CompCntrOps, caps ibv.CompCntrCaps) error {
	if lacking := ops &^ caps.SupportedQPAttachOps; lacking != 0 {
		return &probe.UnsupportedError{
			Feature: "a completion counter of " + lacking.String(),
			Object:  device,
			Reason:  "the device has counters of " + caps.SupportedQPAttachOps.String() + " alone",
		}
	}
	if slices.ContainsFunc(cfg.Operations, dataplane.Operation.Remote) && caps.MaxValue < leastLimit {
		// No queue of ours limits the operations of the peer, so it may wrap a short counter twice between two reads.
		return fmt.Errorf("counter %q: the device's completion counters go on at 0 past %d, too soon for operations of the peer: count them at the peer: %w",
			cfg.Name, caps.MaxValue, dataplane.ErrInvalid)
	}
	return nil
}

// showWords lets readers of the mirror load the device's words. It sets the words to the total so far, of
// earlier processes and of earlier endpoints of this one.
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

// firstInMirror makes the first counter in the mirror's device segment. Its error is the reason why counters
// cannot be there.
func (c *deviceCounters) firstInMirror(e *endpoint) (*ibv.CompCntr, error) {
	if len(e.counters) == 0 {
		return nil, errNoCounters
	}
	if err := fitForMirror(c.limit); err != nil {
		return nil, err
	}
	return c.inMirror(e)
}

// fitForMirror returns an error if counters wrap too early for the mirror: a reader must not miss a wrap between
// two loads.
func fitForMirror(limit uint64) error {
	if limit < leastLimit {
		return fmt.Errorf("its counters go on at 0 past %d, which is too soon for readers of the words", limit)
	}
	return nil
}

var errNoCounters = errors.New("it feeds no counter")

// inMirror makes a counter in a fresh slot of the device segment.
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

// The device segment cannot grow, so it is made with spare slots. A lost device may still write to its slots,
// so they are only free for others when its context is closed.
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

// opsOf returns the op mask of a counter. The bit number of an operation is its index in dataplane.Operations.
func opsOf(k dataplane.CompletionCounter) (ops ibv.CompCntrOps) {
	for _, op := range k.Operations {
		ops |= 1 << slices.Index(dataplane.Operations(), op)
	}
	return ops
}

// readCntr reads both values of a counter: completions into Packets, errors into Bytes.
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

	// Between two reads the device may count at most limit completions, or we would miss a wrap. Those that we have
	// not polled are outstanding or in the completion queue, which is less than half of limit: see the check in
	// openDeviceCounters. So read again before the polled ones fill the other half.
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

// lagBound is how long a device may take to count a polled completion. No specification requires a device to
// count before it writes the completion, so a short lag is no fault.
const lagBound = int64(time.Second)

// checkLag returns an error if the device has counted fewer completions than we have polled for longer than
// lagBound. More is no error: operations of the peer leave no completion to poll.
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
		return fmt.Errorf("its completion counter shows %d completions and %d errors, and ibv_poll_cq returned %d and %d: the device does not count every completion",
			totals[i].Packets, totals[i].Bytes, p.Packets, p.Bytes)
	}
	c.lagSince = 0
	return nil
}

// read adds to totals what the counters have counted since the last read.
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

// distance returns how much a counter has counted between the values before and now. It may have wrapped to 0
// past limit once. Callers must read it often enough to exclude a second wrap.
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

// Close destroys the counters. Their slots stay in use until endpoint.close, because a device may still write to
// them if destroying a counter fails.
func (c *deviceCounters) Close() error {
	var errs []error
	for _, k := range c.cntrs {
		errs = append(errs, k.deviceCounter.Close())
	}
	return errors.Join(errs...)
}
