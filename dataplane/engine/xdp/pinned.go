package xdp

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/xdp"
)

// pinned is the place and the action of a flow's rules that a dead process left.
type pinned struct {
	place uint32 // of its rules among the rules of their priority
	drops bool
	rules int // how many there are
}

// owner returns the name of the flow's counter in the pins, which hold 48 bytes: a hash of its identity and a hash of its
// name. The identity comes first, so that a renamed flow can be found.
func owner(f flow.Flow) string { return hashed(f.Identity()) + " " + hashed(f.Name) }

// apartOwner returns the name of the counter of a flow on one interface alone. No flow has it, so that no flow takes the
// counter over: neither the flow itself, changed to one of that interface, nor a flow of the next process.
func apartOwner(f backend.Placed, ifname string) string {
	return apartPrefix + owner(f.On(ifname).Flow)
}

// apartPrefix is what only owners of apartOwner begin with.
const apartPrefix = "apart "

func hashed(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

// disown gives counters of single interfaces the owner of apartOwner. An earlier version gave them the owner of a flow of
// that interface. Such a counter is there beside the counter that the flow of its name has on all interfaces.
func (b *Backend) disown() error {
	counters := b.rules.Counters()
	if len(counters) == 0 {
		return nil
	}
	has, all := make(map[string]bool), make(map[string][]xdp.CounterInfo)
	for _, c := range counters {
		id, _, _ := strings.Cut(c.Owner, " ")
		has[c.Owner], all[id] = true, append(all[id], c)
	}
	for _, f := range b.configured {
		if f.Interface == "" {
			continue
		}
		id := hashed(f.Identity())
		if len(all[id]) == 0 {
			continue
		}
		f.Interface = ""
		for _, c := range all[id] {
			if !has[hashed(f.Identity())+strings.TrimPrefix(c.Owner, id)] {
				continue
			}
			if err := b.rules.Rename(c.ID, apartPrefix+c.Owner); err != nil {
				return translate(err)
			}
		}
		delete(all, id) // of another flow of the same packets
	}
	return nil
}

// claim looks for owners that have no counter, and gives them the counter of a flow that counted the same
// under a name that is no longer in the configuration. Where several such flows are left, the first owner
// gets the counter whose rules win over the others.
func (b *Backend) claim(owners []string) error {
	taken := make(map[string]bool)
	for _, f := range b.configured {
		taken[owner(f)] = true
	}
	for _, o := range owners {
		taken[o] = true
	}
	for _, x := range b.flows {
		taken[x.owner] = true
	}
	was := b.pinned()
	has, free := make(map[string]bool), make(map[string][]xdp.CounterInfo)
	for _, c := range b.rules.Counters() {
		has[c.Owner] = true
		if id, _, _ := strings.Cut(c.Owner, " "); !taken[c.Owner] {
			free[id] = append(free[id], c)
		}
	}
	for _, o := range owners {
		id, _, _ := strings.Cut(o, " ")
		if has[o] || len(free[id]) == 0 {
			continue
		}
		best := slices.MinFunc(free[id], func(a, b xdp.CounterInfo) int {
			return cmp.Or(cmp.Compare(was[a.Owner].place, was[b.Owner].place), cmp.Compare(a.ID, b.ID))
		})
		if err := b.rules.Rename(best.ID, o); err != nil {
			return translate(err)
		}
		has[o] = true
		free[id] = slices.DeleteFunc(free[id], func(c xdp.CounterInfo) bool { return c.ID == best.ID })
	}
	return nil
}

// pinned returns the place and the action of the rules in the tables, by the owner of their counter.
func (b *Backend) pinned() map[string]pinned {
	owners := make(map[uint32]string)
	for _, c := range b.rules.Counters() {
		owners[c.ID] = c.Owner
	}
	out := make(map[string]pinned, len(owners))
	for r := range b.there {
		o := owners[r.Counter]
		was, seen := out[o]
		if !seen || r.Order < was.place {
			was.place = r.Order
		}
		was.drops = was.drops || r.Drop
		was.rules++
		out[o] = was
	}
	return out
}

// spread is the distance between the places of the flows of a start. A later flow finds a place between two of
// them, and the flows behind it keep their places.
const spread = 64

// place returns the place of a flow among the flows of its priority, after RemoveStale.
func (b *Backend) place(f backend.Placed) uint32 { return b.next + f.Order - b.ordered }

// places returns the place of every flow among the flows of its priority: the place of its pinned rules, as long as
// that keeps the flows in order.
func (b *Backend) places(flows []backend.Placed, owners []string, was map[string]pinned) []uint32 {
	out := make([]uint32, len(owners))
	if b.staleRemoved {
		for i, f := range flows {
			out[i] = b.place(f)
		}
		return out
	}
	last := -1 // flow that has a place
	for i, o := range owners {
		if _, ok := was[o]; ok {
			last = i
		}
	}
	for i, o := range owners {
		if p, ok := was[o]; ok && p.place > b.next {
			b.next = p.place
		}
		out[i] = b.next
		if i < last {
			b.next++
		} else {
			b.next += spread
		}
		b.ordered = flows[i].Order + 1
	}
	return out
}

// stale lists the pinned rules that the rules of flows replace: other rules with the counters of flows, and
// rules with the key, the mask and the rank of a missing rule.
func (b *Backend) stale(flows []*entry, missing []xdp.Rule) []xdp.Rule {
	counters := make(map[uint32]bool, len(flows))
	for _, x := range flows {
		counters[x.counter] = true
	}
	nameless := func(r xdp.Rule) xdp.Rule {
		r.Counter, r.Drop = 0, false
		return r
	}
	taken := make(map[xdp.Rule]bool, len(missing))
	for _, r := range missing {
		taken[nameless(r)] = true
	}
	kept := make(map[xdp.Rule]bool)
	for _, rules := range b.installed { // of flows, too
		for _, r := range rules {
			kept[r] = true
		}
	}
	var out []xdp.Rule
	for r := range b.there {
		if !kept[r] && (counters[r.Counter] || taken[nameless(r)]) {
			out = append(out, r)
		}
	}
	return out
}

// dropUnowned removes the rules and counters of a dead process that belong neither to owners nor to flows. A start places
// its flows in parts: the rules and counters of all configured flows stay, also of those that have another name.
func (b *Backend) dropUnowned(owners []string) error {
	for _, f := range b.configured {
		owners = append(owners, owner(f))
	}
	if err := b.claim(owners); err != nil {
		return err
	}
	asked := make(map[string]bool, len(owners))
	for _, o := range owners {
		asked[o] = true
	}
	for _, x := range b.flows {
		asked[x.owner] = true
	}
	idle := make(map[uint32]bool)
	var counters []uint32
	for _, c := range b.rules.Counters() {
		if !asked[c.Owner] {
			idle[c.ID] = true
			counters = append(counters, c.ID)
		}
	}
	var rules []xdp.Rule
	for r := range b.there {
		if idle[r.Counter] {
			rules = append(rules, r)
		}
	}
	if err := b.dropRules(rules); err != nil {
		return err
	}
	b.claimed = true
	return b.freeCounters(counters)
}
