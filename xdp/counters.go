package xdp

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strings"
)

// counterPool gives out slots of the counters' map. Slots are never zeroed: a count begins at the value that the slot
// has when it is taken, and a slot that was given back is taken again only after a grace period, so that no packet of
// its last owner comes late.
type counterPool struct {
	meta   *meta
	n      uint32
	owners map[string]uint32
	fresh  uint32   // from here on no slot was used by this process or found in use
	clean  []uint32 // given back, and a grace period has passed
	dirty  []uint32 // given back since
}

// newCounterPool takes up the records of the meta map. Its free slots may have been given back a
// moment ago: the caller waits for a grace period before it allocates.
func newCounterPool(m *meta, n int) *counterPool {
	p := &counterPool{meta: m, n: uint32(n), owners: map[string]uint32{}}
	for id := range p.n {
		if r := m.counter(id); r.used() {
			p.owners[r.owner()] = id
			for ; p.fresh < id; p.fresh++ {
				p.clean = append(p.clean, p.fresh)
			}
			p.fresh = id + 1
		}
	}
	return p
}

func (p *counterPool) free(id uint32) {
	r := p.meta.counter(id)
	delete(p.owners, r.owner())
	r.release()
	p.dirty = append(p.dirty, id)
}

// graceful: a grace period has passed since the last free.
func (p *counterPool) graceful() {
	p.clean = append(p.clean, p.dirty...)
	p.dirty = p.dirty[:0]
}

// next is a slot that may be taken; false: one may after a grace period, or none.
func (p *counterPool) next() (uint32, bool) {
	if n := len(p.clean); n > 0 {
		id := p.clean[n-1]
		p.clean = p.clean[:n-1]
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

func newCookie() uint64 {
	var b [8]byte
	rand.Read(b[:]) // it never returns an error
	return binary.LittleEndian.Uint64(b[:]) | 1
}

// AllocCounter gives owner a counter that stands at 0. The owner that has one already, from before a restart or from
// this process, gets that one, with its value: Adopted says so. An owner is 1 to 48 bytes, none of which is 0.
func (rs *RuleSet) AllocCounter(owner string) (Counter, error) {
	if err := rs.enter(); err != nil {
		return Counter{}, err
	}
	defer rs.mu.Unlock()
	if err := checkOwner(owner); err != nil {
		return Counter{}, fmt.Errorf("allocating a counter for %q: %w", owner, err)
	}
	if id, ok := rs.pool.owners[owner]; ok {
		return rs.pool.info(id, true).Counter, nil
	}
	id, ok := rs.pool.next()
	if !ok && len(rs.pool.dirty) > 0 {
		if err := rs.wait(); err != nil {
			return Counter{}, err
		}
		id, ok = rs.pool.next()
	}
	if !ok {
		return Counter{}, fmt.Errorf("allocating a counter: %w: all %d are in use", ErrFull, rs.pool.n)
	}
	base, err := rs.values.raw(id)
	if err != nil {
		rs.pool.dirty = append(rs.pool.dirty, id)
		return Counter{}, err
	}
	cookie := newCookie()
	rs.values.base[id] = base
	rs.values.setLeast(id, 0)
	rs.pool.meta.counter(id).take(owner, cookie, base.since(sums{}))
	rs.pool.owners[owner] = id
	return Counter{ID: id, Cookie: cookie}, nil
}

func checkOwner(owner string) error {
	if len(owner) == 0 || len(owner) > metaOwnerMax || strings.IndexByte(owner, 0) >= 0 {
		return fmt.Errorf("%w: an owner is 1 to %d bytes, none of which is 0", ErrInvalid, metaOwnerMax)
	}
	return nil
}

// Rename gives a counter to another owner; its value, its cookie and its rules stay.
func (rs *RuleSet) Rename(id uint32, owner string) error {
	if err := rs.enter(); err != nil {
		return err
	}
	defer rs.mu.Unlock()
	if err := checkOwner(owner); err != nil {
		return fmt.Errorf("giving counter %d to %q: %w", id, owner, err)
	}
	if id >= rs.pool.n || !rs.pool.meta.counter(id).used() {
		return fmt.Errorf("giving counter %d to %q: %w", id, owner, ErrNotFound)
	}
	if other, there := rs.pool.owners[owner]; there {
		if other == id {
			return nil
		}
		return fmt.Errorf("giving counter %d to %q: %w: counter %d is its own", id, owner, ErrExists, other)
	}
	r := rs.pool.meta.counter(id)
	delete(rs.pool.owners, r.owner())
	r.rename(owner)
	rs.pool.owners[owner] = id
	return nil
}

// FreeCounter gives a counter back. A counter that a rule counts on is refused.
func (rs *RuleSet) FreeCounter(id uint32) error {
	if err := rs.enter(); err != nil {
		return err
	}
	defer rs.mu.Unlock()
	if id >= rs.pool.n || !rs.pool.meta.counter(id).used() {
		return fmt.Errorf("freeing counter %d: %w", id, ErrNotFound)
	}
	if rs.tables.uses(id) {
		return fmt.Errorf("freeing counter %d: %w: a rule counts on it", id, ErrInvalid)
	}
	delete(rs.adopted, id)
	rs.pool.free(id)
	return nil
}

// Counters lists the counters in use, in no order.
func (rs *RuleSet) Counters() []CounterInfo {
	if rs.enter() != nil {
		return nil
	}
	defer rs.mu.Unlock()
	all := make([]CounterInfo, 0, len(rs.pool.owners))
	for _, id := range rs.pool.owners {
		all = append(all, rs.pool.info(id, rs.adopted[id]))
	}
	return all
}

// Counter is a slot of the counters' map and its count since it was given to its owner.
type Counter struct {
	ID     uint32
	Cookie uint64 // random, new with every allocation: names this run of counting
	// Adopted says that the counter was there already, in this process or from
	// before a restart: its value goes on.
	Adopted bool
}

// CounterInfo is an allocated counter and its owner.
type CounterInfo struct {
	Counter
	Owner string
}

// Pair is the value of a counter: the bytes of exactly these packets, layer 2 without FCS.
type Pair struct{ Packets, Bytes uint64 }

// Row is the value of a counter and the time of its sample, in the layout of a row of a mirror.
type Row struct {
	Packets, Bytes uint64
	SampledAt      int64 // ns of CLOCK_MONOTONIC
}

// Base returns the value that the slot of a counter had when its count began: Read subtracts it. The counter is in
// use.
func (rs *RuleSet) Base(id uint32) Pair { return rs.values.base[id].since(sums{}) }
