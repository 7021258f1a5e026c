package xdp

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/xdp/links"
)

// stacks knows the links of the namespace from their events, and which of the counted ones lie above one another.
type stacks struct {
	links   map[int]links.Link // by index
	counted []int              // of found
	found   []links.Stack
	stale   bool // links have changed since found
}

func newStacks() stacks { return stacks{links: make(map[int]links.Link)} }

// note updates the links.
func (s *stacks) note(ev links.Event) {
	switch {
	case ev.Kind == links.Removed:
		delete(s.links, ev.Index)
	case ev.Link.Index != 0:
		s.links[ev.Index] = ev.Link
	}
	s.stale = true
}

// of returns the stacks of the counted links. They are found again only when links or the counted ones have changed.
func (s *stacks) of(counted []int) []links.Stack {
	if s.stale || !slices.Equal(s.counted, counted) {
		s.counted = counted
		s.found = links.Stacks(s.links, counted)
		s.stale = false
	}
	return s.found
}

// countedOn is an interface of the configuration, and the directions in which flows are counted on it now.
type countedOn struct {
	dataplane.Interface
	index           int // 0: its link is not known
	ingress, egress bool
}

func (c countedOn) counts(d flow.Direction) bool {
	if d == flow.Egress {
		return c.egress
	}
	return c.ingress
}

// countedNow lists the interfaces of the configuration, with the held hooks.
func (h *hooks) countedNow() []countedOn {
	held := make(map[string]countedOn)
	for _, a := range h.held {
		c := held[a.Interface]
		c.index = a.Index
		c.ingress = c.ingress || hookOf(flow.Flow{Direction: flow.Ingress}) == a.Hook
		c.egress = c.egress || hookOf(flow.Flow{Direction: flow.Egress}) == a.Hook
		held[a.Interface] = c
	}
	var on []countedOn
	for _, i := range h.interfaces {
		c := held[i.Name]
		c.Interface = i
		on = append(on, c)
	}
	return on
}

// stackConditions lists the interfaces that lie above others and count packets a second time.
func (h *hooks) stackConditions() []dataplane.Condition {
	on := h.countedNow()
	var indexes []int
	for _, c := range on {
		if c.index != 0 {
			indexes = append(indexes, c.index)
		}
	}
	return stackConditions(h.patterns, on, h.upstream.stacks.of(indexes), h.demand)
}

// Stacked returns the conditions that a configuration will raise for the links of the network namespace of the calling
// thread, where flows are counted on all interfaces that it matches. It takes no privilege.
func Stacked(list []dataplane.Interface, flows []flow.Flow) ([]dataplane.Condition, error) {
	all, err := links.List()
	if err != nil {
		return nil, err
	}
	return stackedOf(list, flows, all), nil
}

func stackedOf(list []dataplane.Interface, flows []flow.Flow, all map[int]links.Link) []dataplane.Condition {
	need := make(demands)
	for _, f := range flows {
		need.add(f, 1)
	}
	var on []countedOn
	var indexes []int
	for _, l := range all {
		i, is := dataplane.FindInterface(list, l.Name)
		if !is {
			continue
		}
		i.Name = l.Name
		sum := need.sum(l.Name)
		on = append(on, countedOn{Interface: i, index: l.Index, ingress: sum.ingress > 0 && i.Counts(flow.Ingress), egress: sum.egress > 0 && i.Counts(flow.Egress)})
		indexes = append(indexes, l.Index)
	}
	slices.SortFunc(on, func(a, b countedOn) int { return a.index - b.index })
	return stackConditions(list, on, links.Stacks(all, indexes), need)
}

// stackConditions returns a condition for each interface that sees packets which another counted interface sees as well,
// if a flow counts on both. A flow with an interface of its own counts on one.
func stackConditions(patterns backend.Patterns, on []countedOn, found []links.Stack, need demands) []dataplane.Condition {
	if len(found) == 0 {
		return nil
	}
	byIndex := make(map[int]countedOn, len(on))
	for _, c := range on {
		byIndex[c.index] = c
	}
	twice := make(map[flow.Direction][]links.Stack)
	does := make(map[int][]string)  // by the index of an upper interface: "receives", "sends"
	below := make(map[int][]string) // by the index of an upper interface: the names of lower ones
	for _, d := range []flow.Direction{flow.Ingress, flow.Egress} {
		for _, s := range found {
			upper, lower := byIndex[s.Upper], byIndex[s.Lower]
			if !upper.counts(d) || !lower.counts(d) || !need.meetTwice(d, s) {
				continue
			}
			twice[d] = append(twice[d], s)
			if word := map[flow.Direction]string{flow.Ingress: "receives", flow.Egress: "sends"}[d]; !slices.Contains(does[s.Upper], word) {
				does[s.Upper] = append(does[s.Upper], word)
			}
			if !slices.Contains(below[s.Upper], lower.Name) {
				below[s.Upper] = append(below[s.Upper], lower.Name)
			}
		}
	}

	fix := stackFix(patterns, on, twice, need)
	var out []dataplane.Condition
	for _, c := range on {
		names := below[c.index]
		if c.index == 0 || len(names) == 0 {
			continue
		}
		slices.Sort(names)
		out = append(out, dataplane.Condition{
			Code: dataplane.CodeInterfacesStacked, Severity: dataplane.Medium, Object: c.Name,
			Text: fmt.Sprintf("packets that %s %s pass %s as well, and both are counted on: a flow without an interface of its own counts each such packet more than once",
				c.Name, strings.Join(does[c.index], " or "), someNames(names)),
			Fix: fix,
		})
	}
	return out
}

// meetTwice reports whether a flow on all interfaces can match a packet on both links of a stack. A flow that matches a
// VLAN tag, or the absence of one, matches on one side of a VLAN device only.
func (d demands) meetTwice(dir flow.Direction, s links.Stack) bool {
	all := d[""]
	flows, tagged := all.ingress, all.taggedIngress
	if dir == flow.Egress {
		flows, tagged = all.egress, all.taggedEgress
	}
	if s.Tag {
		flows -= tagged
	}
	return flows > 0
}

// sum returns how many flows need an interface.
func (d demands) sum(name string) demand {
	all, own := d[""], d[name]
	return demand{ingress: all.ingress + own.ingress, egress: all.egress + own.egress}
}

// someNames lists at most eight names.
func someNames(names []string) string {
	const most = 8
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// stackFix names the list of interfaces on which each packet is counted once: the lowest of each stack, which sees the
// most packets, and every interface that a flow asks for.
func stackFix(patterns backend.Patterns, on []countedOn, twice map[flow.Direction][]links.Stack, need demands) string {
	const give = "give each flow an interface of its own (interface: NAME)"
	var changes map[string]dataplane.Interface // by name; the zero value leaves the interface out
	for _, d := range []flow.Direction{flow.Ingress, flow.Egress} {
		drop, ok := dropped(d, on, twice[d], need)
		if !ok {
			return give + ": flows ask for both interfaces by name, so both must stay"
		}
		for _, c := range on {
			if !drop[c.index] {
				continue
			}
			if changes == nil {
				changes = make(map[string]dataplane.Interface)
			}
			other := flow.Egress
			if d == flow.Egress {
				other = flow.Ingress
			}
			now := dataplane.Interface{}
			if _, both := changes[c.Name]; !both && c.counts(other) {
				now = c.Interface
				now.Direction = dataplane.InterfaceDirection(other.String())
			}
			changes[c.Name] = now
		}
	}
	var left []string
	for _, c := range on {
		if now, changed := changes[c.Name]; changed && now.Name == "" {
			left = append(left, c.Name)
		}
	}
	fix := "interfaces: [" + strings.Join(rewritten(patterns, on, changes), ", ") + "] in the configuration, then flowtally apply -f FILE"
	if len(left) > 0 {
		fix += ", which leaves out " + someNames(left)
	}
	return fix + ". Or " + give
}

// dropped returns the interfaces that must not count a direction, so that no two of the others are a stack. ok is false
// if two interfaces that flows ask for by name are one.
func dropped(d flow.Direction, on []countedOn, twice []links.Stack, need demands) (drop map[int]bool, ok bool) {
	partners := make(map[int][]int)
	lowers := make(map[int]int)
	for _, s := range twice {
		partners[s.Upper] = append(partners[s.Upper], s.Lower)
		partners[s.Lower] = append(partners[s.Lower], s.Upper)
		lowers[s.Upper]++
	}
	named := func(c countedOn) bool {
		own := need[c.Name]
		return d == flow.Egress && own.egress > 0 || d != flow.Egress && own.ingress > 0
	}
	order := slices.Clone(on)
	slices.SortStableFunc(order, func(a, b countedOn) int {
		if x, y := named(a), named(b); x != y {
			if x {
				return -1
			}
			return 1
		}
		return lowers[a.index] - lowers[b.index]
	})
	kept := make(map[int]bool)
	drop = make(map[int]bool)
	for _, c := range order {
		if !c.counts(d) || len(partners[c.index]) == 0 {
			continue
		}
		switch stacked := slices.ContainsFunc(partners[c.index], func(other int) bool { return kept[other] }); {
		case stacked && named(c):
			return nil, false
		case stacked:
			drop[c.index] = true
		default:
			kept[c.index] = true
		}
	}
	return drop, true
}

// rewritten returns the entries of the configuration in YAML, with some interfaces changed or left out. An entry whose
// interfaces do not change stays, and another pattern becomes the names that it matches.
func rewritten(patterns backend.Patterns, on []countedOn, changes map[string]dataplane.Interface) (entries []string) {
	of := make(map[string][]countedOn) // by the name of an entry
	touched := make(map[string]bool)
	for _, c := range on {
		if entry, is := dataplane.FindInterface(patterns, c.Name); is {
			of[entry.Name] = append(of[entry.Name], c)
			_, changed := changes[c.Name]
			touched[entry.Name] = touched[entry.Name] || changed
		}
	}
	for _, entry := range patterns {
		if !touched[entry.Name] {
			entries = append(entries, entryText(entry))
			continue
		}
		for _, c := range of[entry.Name] {
			now, changed := changes[c.Name]
			if !changed {
				now = c.Interface
			}
			if now.Name != "" {
				entries = append(entries, entryText(now))
			}
		}
	}
	return entries
}

// plainName is a name that YAML takes without quotes, also within a list.
var plainName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*[*]?$`)

// entryText returns an interface as an entry of the configuration.
func entryText(i dataplane.Interface) string {
	name := i.Name
	if !plainName.MatchString(name) || slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}, strings.ToLower(name)) {
		name = `'` + strings.ReplaceAll(name, `'`, `''`) + `'`
	}
	fields := []string{"name: " + name}
	if i.Mode != "" {
		fields = append(fields, "mode: "+string(i.Mode))
	}
	if i.Optional {
		fields = append(fields, "optional: true")
	}
	if i.Direction != "" && i.Direction != dataplane.DirectionBoth {
		fields = append(fields, "direction: "+string(i.Direction))
	}
	if len(fields) == 1 {
		return name
	}
	return "{" + strings.Join(fields, ", ") + "}"
}
