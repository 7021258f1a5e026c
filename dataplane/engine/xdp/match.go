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

// owner returns the name of a flow's counter in the pins: a hash of the flow's identity, then a hash of its name. A start finds a
// renamed flow by the first half. The pins have room for 48 bytes.
func owner(f flow.Flow) string { return hashed(f.Identity()) + " " + hashed(f.Name) }

// apartOwner returns the name of a flow's counter on one interface. Its prefix differs from the owners of flows, so no flow takes
// the counter over after a restart: it would lack the packets of the other interfaces.
func apartOwner(f backend.Placed, ifname string) string {
	return apartPrefix + owner(f.On(ifname).Flow)
}

// apartPrefix begins the owners of apartOwner, and no others.
const apartPrefix = "apart "

func hashed(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

// pins is what the last process has left in the kernel.
type pins struct {
	counters []xdp.CounterInfo
	rules    []xdp.Rule
	changing bool       // the process died within a change of the flows
	dropped  []xdp.Rule // half-added rules: the process died within Add, and xdp.Open has dropped them
}

// wanted is a configured flow. Its rules have neither counter nor order yet.
type wanted struct {
	name  string
	owner string
	rules []xdp.Rule
}

// start is the plan of a start: what becomes of each configured flow and of each pinned counter and rule. match makes the plan
// before the backend writes anything. New then renames the counters, Install takes over counters and rules, and RemoveStale
// removes the rest.
type start struct {
	fates     map[string]fate   // by name of a configured flow
	renamed   map[uint32]string // the new owner by pinned counter
	idle      map[uint32]bool   // pinned counters without a configured flow
	next      uint32            // the first place behind all configured flows
	unclaimed map[xdp.Rule]bool // pinned rules in the tables, not yet taken over by an installed flow
}

// fate is the plan for one flow.
type fate struct {
	order   uint32 // its index in the configuration
	adopts  bool   // it takes over a pinned counter
	counter uint32 // with adopts
	place   uint32 // of its rules among the rules of their priority
	drops   bool   // its pinned rules drop packets
	gap     bool   // since the last process its packets may have counted for another flow, or for none
}

// match decides which pinned counter each configured flow takes over, and where its rules go.
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
			// A process that dies while it changes a flow may leave the counter without some of the rules.
			f.gap = unfinished[i] || len(own) < len(w.rules)
		}
		s.fates[w.name] = *f
	}
	return s
}

// adopt gives each flow the pinned counter with its owner. A flow without such a counter may have been renamed: it gets one of its
// identity, if no other configured flow owns that. Of several, it gets the one whose rules have won.
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

	free := make(map[string][]xdp.CounterInfo) // by identity, with the winner first
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

// firstRank returns the rank of the winning rule: the priority, then the order. Without any rule it returns the highest rank.
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

// spread is the distance between the places of new flows at a start. If a flow comes between two of them in a later
// configuration, it finds a free place there, and no rule has to move.
const spread = 64

// arrange gives the flows places in the order of the configuration. Flows keep the places of their pinned rules where the order
// allows it. It returns the first place behind all flows.
func arrange(fates []fate, rules map[uint32][]xdp.Rule) (next uint32) {
	pinned := func(f fate) []xdp.Rule {
		if !f.adopts {
			return nil
		}
		return rules[f.counter]
	}

	last := -1 // the last flow with pinned rules; only behind it is room to spread flows
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

// placesWithout returns by order the places of the configured flows without an entry in installed.
func (s *start) placesWithout(installed map[string]*entry) map[uint32]uint32 {
	places := make(map[uint32]uint32)
	for name, f := range s.fates {
		if installed[name] == nil {
			places[f.order] = f.place
		}
	}
	return places
}

// fate returns the plan for a flow: an empty one after the start, or for any flow that is not configured.
func (s *start) fate(f flow.Flow) fate {
	if s == nil {
		return fate{}
	}
	return s.fates[f.Name]
}

// difference compares rules with the pinned ones. fresh are the rules to add, old the pinned ones to remove: the other rules of
// the same counters, and rules at the position of a fresh one, whatever flow they count for.
func (s *start) difference(flows []*entry, rules []xdp.Rule) (old, fresh []xdp.Rule) {
	if s == nil || len(s.unclaimed) == 0 {
		return nil, rules
	}
	position := func(r xdp.Rule) xdp.Rule { // the tables take one rule per position
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

// noteExchanged notes an exchange: rules belong to installed flows now, and the old ones are gone.
func (s *start) noteExchanged(rules, old []xdp.Rule) {
	if s == nil || len(s.unclaimed) == 0 {
		return
	}
	for _, r := range slices.Concat(rules, old) {
		delete(s.unclaimed, r)
	}
}

// idleRules returns the pinned rules of idle counters.
func (s *start) idleRules() (out []xdp.Rule) {
	for r := range s.unclaimed {
		if s.idle[r.Counter] {
			out = append(out, r)
		}
	}
	return out
}
