package xdp

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strings"
)

// Counter is an allocated counter.
type Counter struct {
	ID uint32

	// Cookie is random and new with each allocation. Two values belong to the same count only if their cookies are equal.
	Cookie uint64

	// Adopted is set if the owner already had this counter, in this process or before a restart. Then its value continues.
	Adopted bool
}

// CounterInfo is an allocated counter and its owner.
type CounterInfo struct {
	Counter
	Owner string
}

// Pair is the value of a counter: a number of packets, and the bytes of exactly those packets. Bytes are layer 2 without FCS.
type Pair struct{ Packets, Bytes uint64 }

// Row is the value of a counter and the time of its sample, in the layout of a row of the mirror.
type Row struct {
	Packets, Bytes uint64
	SampledAt      int64 // ns of CLOCK_MONOTONIC
}

// counterPool allocates counters.
//
// A freed counter must not be allocated again before a grace period has passed. A program still running might otherwise add
// a packet of the last owner to the count of the next one. Slots are never zeroed. A new count starts from their current value.
type counterPool struct {
	meta      *meta
	n         uint32            // number of counters, in use or not
	idByOwner map[string]uint32 // counters in use
	fresh     uint32            // counters from this one on were never in use
	free      []uint32          // freed, and a grace period has passed
	cooling   []uint32          // freed since the last grace period
}

// newCounterPool reads the counters in use from the meta map. An earlier process may have freed the others a moment ago, so the
// caller must wait for a grace period before the first allocation.
func newCounterPool(m *meta, n int) *counterPool {
	p := &counterPool{
		meta:      m,
		n:         uint32(n),
		idByOwner: map[string]uint32{},
	}
	for id := range p.n {
		r := m.counter(id)
		if !r.used() {
			continue
		}
		p.idByOwner[r.owner()] = id
		for ; p.fresh < id; p.fresh++ {
			p.free = append(p.free, p.fresh)
		}
		p.fresh = id + 1
	}
	return p
}

// release frees a counter.
func (p *counterPool) release(id uint32) {
	r := p.meta.counter(id)
	delete(p.idByOwner, r.owner())
	r.release()
	p.cooling = append(p.cooling, id)
}

// cooled makes freed counters available again. The caller has waited for a grace period.
func (p *counterPool) cooled() {
	p.free = append(p.free, p.cooling...)
	p.cooling = p.cooling[:0]
}

// next picks a counter for allocation. ok is false if all are in use or cooling.
func (p *counterPool) next() (id uint32, ok bool) {
	if n := len(p.free); n > 0 {
		id := p.free[n-1]
		p.free = p.free[:n-1]
		return id, true
	}
	if p.fresh < p.n {
		p.fresh++
		return p.fresh - 1, true
	}
	return 0, false
}

func (p *counterPool) info(id uint32, adopted bool) CounterInfo {
	r := p.meta.counter(id)
	return CounterInfo{Counter: Counter{ID: id, Cookie: r.cookie(), Adopted: adopted}, Owner: r.owner()}
}

// newCookie draws a random number other than 0.
func newCookie() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never returns an error
	return binary.LittleEndian.Uint64(b[:]) | 1
}

// AllocCounter allocates a counter, which starts at 0. If owner already has one, in this process or from before a restart,
// AllocCounter returns that one with its value: see Counter.Adopted. owner is 1 to 48 bytes long and contains no zero byte.
func (dp *Datapath) AllocCounter(owner string) (Counter, error) {
	if err := dp.enter(); err != nil {
		return Counter{}, err
	}
	defer dp.mu.Unlock()

	if err := checkOwner(owner); err != nil {
		return Counter{}, fmt.Errorf("allocating a counter for %q: %w", owner, err)
	}
	if id, ok := dp.pool.idByOwner[owner]; ok {
		return dp.pool.info(id, true).Counter, nil
	}

	id, ok := dp.pool.next()
	if !ok && len(dp.pool.cooling) > 0 {
		if err := dp.wait(); err != nil {
			return Counter{}, err
		}
		id, ok = dp.pool.next()
	}
	if !ok {
		return Counter{}, fmt.Errorf("allocating a counter: %w: all %d are in use", ErrFull, dp.pool.n)
	}

	// The current value of the slots becomes the base of the count. The record in the meta map commits the allocation.
	base, err := dp.values.raw(id)
	if err != nil {
		dp.pool.cooling = append(dp.pool.cooling, id)
		return Counter{}, err
	}
	cookie := newCookie()
	dp.values.base[id] = base
	dp.values.setLeast(id, 0)
	dp.pool.meta.counter(id).take(owner, cookie, base.since(sums{}))
	dp.pool.idByOwner[owner] = id
	return Counter{ID: id, Cookie: cookie}, nil
}

func checkOwner(owner string) error {
	if len(owner) == 0 || len(owner) > metaOwnerMax || strings.IndexByte(owner, 0) >= 0 {
		return fmt.Errorf("%w: an owner is 1 to %d bytes, none of which is 0", ErrInvalid, metaOwnerMax)
	}
	return nil
}

// Rename transfers a counter to another owner. Value, cookie and rules are unchanged.
func (dp *Datapath) Rename(id uint32, owner string) error {
	if err := dp.enter(); err != nil {
		return err
	}
	defer dp.mu.Unlock()
	if err := checkOwner(owner); err != nil {
		return fmt.Errorf("giving counter %d to %q: %w", id, owner, err)
	}
	if id >= dp.pool.n || !dp.pool.meta.counter(id).used() {
		return fmt.Errorf("giving counter %d to %q: %w", id, owner, ErrNotFound)
	}
	if other, has := dp.pool.idByOwner[owner]; has {
		if other == id {
			return nil
		}
		return fmt.Errorf("giving counter %d to %q: %w: counter %d is its own", id, owner, ErrExists, other)
	}

	r := dp.pool.meta.counter(id)
	delete(dp.pool.idByOwner, r.owner())
	r.rename(owner)
	dp.pool.idByOwner[owner] = id
	return nil
}

// FreeCounter frees a counter. Callers must remove the rules that count on it first.
func (dp *Datapath) FreeCounter(id uint32) error {
	if err := dp.enter(); err != nil {
		return err
	}
	defer dp.mu.Unlock()
	if id >= dp.pool.n || !dp.pool.meta.counter(id).used() {
		return fmt.Errorf("freeing counter %d: %w", id, ErrNotFound)
	}
	if dp.tables.uses(id) {
		return fmt.Errorf("freeing counter %d: %w: a rule counts on it", id, ErrInvalid)
	}
	delete(dp.adopted, id)
	dp.pool.release(id)
	return nil
}

// Counters lists the counters in use, in no particular order.
func (dp *Datapath) Counters() []CounterInfo {
	if dp.enter() != nil {
		return nil
	}
	defer dp.mu.Unlock()
	all := make([]CounterInfo, 0, len(dp.pool.idByOwner))
	for _, id := range dp.pool.idByOwner {
		all = append(all, dp.pool.info(id, dp.adopted[id]))
	}
	return all
}

// Base returns the value of the slots at the start of a count, which Read subtracts. The counter must be in use.
func (dp *Datapath) Base(id uint32) Pair { return dp.values.base[id].since(sums{}) }
