package xdp

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/xdp"
)

// owner returns the name of the flow's counter in the pins: a hash of the flow's identity and a hash of its name. The pins
// have 48 bytes for it. The identity comes first, so that a start finds a renamed flow by it.
func owner(f flow.Flow) string { return hashed(f.Identity()) + " " + hashed(f.Name) }

// apartOwner returns the name of the counter of a flow on one interface alone. It differs from the owner of every flow. So no
// flow takes that counter over: not the flow itself when it is changed to that interface, and no flow of the next process.
func apartOwner(f backend.Placed, ifname string) string {
	return apartPrefix + owner(f.On(ifname).Flow)
}

// apartPrefix begins the owners of apartOwner, and no others.
const apartPrefix = "apart "

func hashed(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

// pins are what the last process left in the kernel.
type pins struct {
	counters []xdp.CounterInfo
	rules    []xdp.Rule
	changing bool       // the process died within a change of the flows
	dropped  []xdp.Rule // rules that the process was adding when it died: xdp.Open dropped them
}

// wanted is a configured flow. Its rules have no counter and no order yet.
type wanted struct {
	name  string
	owner string
	rules []xdp.Rule
}

// start is what a start makes of the pins. match decides it for all configured flows, before the backend writes anything.
// New renames the counters, Install takes over counters and rules, and RemoveStale removes the rest.
type start struct {
	fates     map[string]fate   // of the configured flows, by name
	renamed   map[uint32]string // the new owners of pinned counters
	idle      map[uint32]bool   // pinned counters that no configured flow takes over
	next      uint32            // the place behind all configured flows
	unclaimed map[xdp.Rule]bool // pinned rules in the tables that no installed flow has
}

// fate is what a start makes of one flow.
type fate struct {
	order   uint32 // of the flow in the configuration
	adopts  bool   // it takes a pinned counter over
	counter uint32 // the pinned counter
	place   uint32 // of its rules among the rules of their priority
	drops   bool   // its pinned rules drop
	gap     bool   // while its counter was pinned, its packets may have counted for another flow, or for none
}

// match decides which pinned counter each configured flow takes over, and which place its rules get.
func match(configured []wanted, p pins) *start {
	s := &start{
		fates:     make(map[string]fate, len(configured)),
		renamed:   make(map[uint32]string),
		idle:      make(map[uint32]bool),
		unclaimed: make(map[xdp.Rule]bool, len(p.rules)),
	}
	rules := make(map[uint32][]xdp.Rule, len(p.counters))
	for _, r := range p.rules {
		s.unclaimed[r] = true
		rules[r.Counter] = append(rules[r.Counter], r)
	}

	fates := make([]fate, len(configured))
	s.adopt(configured, fates, p.counters, rules)
	s.next = arrange(fates, rules)
	unfinished := s.unfinished(configured, fates, p)

	for i, w := range configured {
		f := &fates[i]
		f.order = uint32(i)
		if f.adopts {
			own := rules[f.counter]
			f.drops = slices.ContainsFunc(own, func(r xdp.Rule) bool { return r.Drop })
			// A process that is killed while it changes a flow leaves the flow's counter without some of its rules.
			f.gap = unfinished[i] || len(own) < len(w.rules)
		}
		s.fates[w.name] = *f
	}
	return s
}

// adopt gives each flow the pinned counter of its owner. A flow without one was perhaps renamed: it gets a counter of its
// identity that no configured flow owns. Of several such counters, it gets the one whose rules win.
func (s *start) adopt(configured []wanted, fates []fate, counters []xdp.CounterInfo, rules map[uint32][]xdp.Rule) {
	byOwner := make(map[string]uint32, len(counters))
	for _, c := range counters {
		byOwner[c.Owner] = c.ID
		s.idle[c.ID] = true
	}
	take := func(i int, id uint32) {
		fates[i] = fate{adopts: true, counter: id}
		delete(s.idle, id)
	}
	for i, w := range configured {
		if id, ok := byOwner[w.owner]; ok {
			take(i, id)
		}
	}

	free := make(map[string][]xdp.CounterInfo) // by identity; the one whose rules win is first
	for _, c := range counters {
		if identity, _, _ := strings.Cut(c.Owner, " "); s.idle[c.ID] {
			free[identity] = append(free[identity], c)
		}
	}
	for _, of := range free {
		slices.SortFunc(of, func(a, b xdp.CounterInfo) int {
			return cmp.Or(cmp.Compare(firstRank(rules[a.ID]), firstRank(rules[b.ID])), cmp.Compare(a.ID, b.ID))
		})
	}
	for i, w := range configured {
		identity, _, _ := strings.Cut(w.owner, " ")
		if of := free[identity]; !fates[i].adopts && len(of) > 0 {
			take(i, of[0].ID)
			s.renamed[of[0].ID] = w.owner
			free[identity] = of[1:]
		}
	}
}

// firstRank returns the priority and the order of the rule that wins over the others. No rule comes last.
func firstRank(rules []xdp.Rule) uint64 {
	first := uint64(math.MaxUint64)
	for _, r := range rules {
		first = min(first, uint64(r.Priority)<<32|uint64(r.Order))
	}
	return first
}

// firstOrder returns the lowest order of the rules.
func firstOrder(rules []xdp.Rule) uint32 {
	first := uint32(math.MaxUint32)
	for _, r := range rules {
		first = min(first, r.Order)
	}
	return first
}

// spread is the distance between the places of the flows of a start. A later flow finds a place between two of
// them, and the flows behind it keep their places.
const spread = 64

// arrange gives each flow the place of its pinned rules, as long as this keeps the flows in order. It returns the place behind
// all of them.
func arrange(fates []fate, rules map[uint32][]xdp.Rule) (next uint32) {
	pinned := func(f fate) []xdp.Rule {
		if !f.adopts {
			return nil
		}
		return rules[f.counter]
	}

	last := -1 // the last flow with pinned rules: flows behind it are spread
	for i, f := range fates {
		if len(pinned(f)) > 0 {
			last = i
		}
	}

	for i, f := range fates {
		if own := pinned(f); len(own) > 0 {
			next = max(next, firstOrder(own))
		}
		fates[i].place = next
		if i < last {
			next++
		} else {
			next += spread
		}
	}
	return next
}

// placesWithout returns the places of the configured flows that are not installed, by their order.
func (s *start) placesWithout(installed map[string]*entry) map[uint32]uint32 {
	places := make(map[uint32]uint32)
	for name, f := range s.fates {
		if installed[name] == nil {
			places[f.order] = f.place
		}
	}
	return places
}

// fate returns what a start makes of a flow.
func (s *start) fate(f flow.Flow) fate {
	if s == nil {
		return fate{}
	}
	return s.fates[f.Name]
}

// difference returns the pinned rules that rules replace, and those of rules that are not pinned yet. A pinned rule is
// replaced if it has the counter of one of flows, or if a fresh rule has its key, its mask and its rank.
func (s *start) difference(flows []*entry, rules []xdp.Rule) (old, fresh []xdp.Rule) {
	if s == nil || len(s.unclaimed) == 0 {
		return nil, rules
	}
	position := func(r xdp.Rule) xdp.Rule { // the tables hold one rule at a position
		r.Counter = 0
		r.Drop = false
		return r
	}

	pinned := make(map[xdp.Rule]bool)
	taken := make(map[xdp.Rule]bool) // by position
	for _, r := range rules {
		if s.unclaimed[r] {
			pinned[r] = true
			continue
		}
		taken[position(r)] = true
		fresh = append(fresh, r)
	}

	counters := make(map[uint32]bool, len(flows))
	for _, x := range flows {
		counters[x.counter] = true
	}
	for r := range s.unclaimed {
		if !pinned[r] && (counters[r.Counter] || taken[position(r)]) {
			old = append(old, r)
		}
	}
	return old, fresh
}

// noteExchanged notes that installed flows have these rules, and that the old ones are gone.
func (s *start) noteExchanged(rules, old []xdp.Rule) {
	if s == nil || len(s.unclaimed) == 0 {
		return
	}
	for _, r := range slices.Concat(rules, old) {
		delete(s.unclaimed, r)
	}
}

// idleRules returns the pinned rules in the tables that count for no configured flow.
func (s *start) idleRules() (out []xdp.Rule) {
	for r := range s.unclaimed {
		if s.idle[r.Counter] {
			out = append(out, r)
		}
	}
	return out
}
