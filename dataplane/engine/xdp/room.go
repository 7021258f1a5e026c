package xdp

import (
	"errors"
	"fmt"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/xdp"
)

// room implements backend.Room: it counts what is in use, and what the taken flows would use.
type room struct {
	counters, rules         int // in use or taken
	mostCounters, mostRules int
	maxFlows                int // for errors

	// During a start, flows take pinned counters and rules over, and idle ones make room.
	pinned    map[string]xdp.Counter // by owner
	pinnedOf  map[uint32]int         // by counter: the number of its pinned rules
	idle      int                    // counters that dropIdle would free
	idleRules int                    // rules that dropIdle would remove
}

// Room implements backend.Roomy.
func (b *Backend) Room() backend.Room {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.room()
}

func (b *Backend) room() *room {
	s := b.rules.Stats()
	r := &room{counters: s.Counters, rules: s.Rules, mostCounters: s.MaxCounters, mostRules: s.MaxRules, maxFlows: b.maxFlows}
	if b.start == nil {
		return r
	}
	counters := b.rules.Counters()
	r.pinned = make(map[string]xdp.Counter, len(counters))
	r.pinnedOf = make(map[uint32]int, len(counters))
	for _, c := range counters {
		r.pinned[c.Owner] = c.Counter
	}
	r.idle = len(b.start.idle)
	for rule := range b.start.unclaimed {
		if b.start.idle[rule.Counter] {
			r.idleRules++
		} else {
			r.pinnedOf[rule.Counter]++
		}
	}
	return r
}

// need returns how many counters and rules a flow needs beside those that it takes over, and the cookie of its pinned counter.
func (r *room) need(f backend.Placed) (counters, rules int, cookie uint64) {
	rules = countRules(f.Match)
	if len(r.pinned) == 0 {
		return 1, rules, 0
	}
	c, pinned := r.pinned[owner(f.Flow)]
	if !pinned {
		return 1, rules, 0
	}
	return 0, max(0, rules-r.pinnedOf[c.ID]), c.Cookie
}

// Fits implements backend.Room.
func (r *room) Fits(f backend.Placed) (cookie uint64, err error) {
	counters, rules, cookie := r.need(f)
	return cookie, nameLimit(r.lacks(counters, rules), r.maxFlows)
}

// Take implements backend.Room.
func (r *room) Take(f backend.Placed) {
	counters, rules, _ := r.need(f)
	r.counters += counters
	r.rules += rules
}

// lacks returns an error if the tables have no room for more counters and rules, even without the idle ones.
func (r *room) lacks(counters, rules int) error {
	if n := r.counters + counters - r.idle; n > r.mostCounters {
		return translate(fmt.Errorf("allocating counters: %w: there are %d, and the flows need %d", xdp.ErrFull, r.mostCounters, n))
	}
	if n := r.rules + rules - r.idleRules; n > r.mostRules {
		return translate(fmt.Errorf("adding rules: %w: the tables hold %d rules, and the flows need %d", xdp.ErrFull, r.mostRules, n))
	}
	return nil
}

// nameLimit adds the setting that limits the tables to an error that says they are full.
func nameLimit(err error, maxFlows int) error {
	if errors.Is(err, xdp.ErrFull) {
		return fmt.Errorf("%w; xdp.max_flows is %d", err, maxFlows)
	}
	return err
}

// tryWithoutIdle returns the error that adding flows would have without the idle rules. It builds the trees in memory and leaves
// the kernel alone: if the start fails anyway, the idle counters and their totals must survive it.
func (b *Backend) tryWithoutIdle(flows []backend.Placed) error {
	type rank struct {
		priority uint16
		order    uint32
	}
	names := make(map[rank]string, len(flows))
	replaced := make(map[uint32]bool, len(flows)) // counters whose pinned rules the flows replace
	var rules []xdp.Rule
	for _, f := range flows {
		if pinned := b.start.fate(f.Flow); pinned.adopts {
			replaced[pinned.counter] = true
		}
		f.Order = b.place(f)
		own, err := b.compileOn(f, 0, true)
		if err != nil {
			return err
		}
		names[rank{f.Priority, f.Order}] = f.Name
		rules = append(rules, own...)
	}
	for _, r := range b.rules.Rules() {
		if !b.start.idle[r.Counter] && !replaced[r.Counter] {
			r.Counter = 0 // the model has only this one
			rules = append(rules, r)
		}
	}
	_, err := xdp.NewModel(rules, b.rules.Stats().MaxRules, b.worstCost, true)
	if err != nil {
		err = withFlows(err, func(r *xdp.Rule) string { return names[rank{r.Priority, r.Order}] })
		return fmt.Errorf("adding rules: %w", translate(err))
	}
	return nil
}
