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

// stacks follows the links of the namespace by their events, and finds counted links above each other.
type stacks struct {
	links   map[int]links.Link // by index
	counted []int              // the links of the last search, by index
	found   []links.Stack      // among counted
	stale   bool               // links have changed since the search
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

// of returns the stacks among the counted links. It searches again only if these or the links have changed.
func (s *stacks) of(counted []int) []links.Stack {
	if s.stale || !slices.Equal(s.counted, counted) {
		s.counted = counted
		s.found = links.Stacks(s.links, counted)
		s.stale = false
	}
	return s.found
}

// countedOn is a configured interface with the directions in which it counts.
type countedOn struct {
	dataplane.Interface
	index           int // 0: unknown without a held hook
	ingress, egress bool
}

func (c countedOn) counts(d flow.Direction) bool {
	if d == flow.Egress {
		return c.egress
	}
	return c.ingress
}

// countedNow lists the configured interfaces, with the directions of the held hooks.
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

// stackConditions returns a condition for each interface above another one that counts the same packets.
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

// Stacked predicts the conditions of stacked interfaces for a configuration, before anything is attached. It looks at the links in
// the network namespace of the calling thread, and needs no privilege.
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
		i, configured := dataplane.FindInterface(list, l.Name)
		if !configured {
			continue
		}
		i.Name = l.Name
		sum := need.sum(l.Name)
		on = append(on, countedOn{
			Interface: i,
			index:     l.Index,
			ingress:   sum.ingress > 0 && i.Counts(flow.Ingress),
			egress:    sum.egress > 0 && i.Counts(flow.Egress),
		})
		indexes = append(indexes, l.Index)
	}
	slices.SortFunc(on, func(a, b countedOn) int { return a.index - b.index })
	return stackConditions(list, on, links.Stacks(all, indexes), need)
}

// longFix is the longest fix, in bytes, for every condition to repeat. A longer one is only in the first condition, and the others
// refer to it. It lists all interfaces, so repeating it would let the text grow with the square of their number.
const longFix = 400

// stackConditions returns a condition for the upper interface of each stack if some flow counts on both of its interfaces. A flow
// with an interface of its own never does.
func stackConditions(patterns backend.Patterns, on []countedOn, found []links.Stack, need demands) []dataplane.Condition {
	if len(found) == 0 {
		return nil
	}
	byIndex := make(map[int]countedOn, len(on))
	for _, c := range on {
		byIndex[c.index] = c
	}

	verbs := map[flow.Direction]string{flow.Ingress: "receives", flow.Egress: "sends"}
	twice := make(map[flow.Direction][]links.Stack)
	verbsByUpper := make(map[int][]string)
	lowersByUpper := make(map[int][]string) // names
	for _, d := range []flow.Direction{flow.Ingress, flow.Egress} {
		for _, s := range found {
			upper, lower := byIndex[s.Upper], byIndex[s.Lower]
			if !upper.counts(d) || !lower.counts(d) || !need.countTwice(d, s) {
				continue
			}

			twice[d] = append(twice[d], s)
			if !slices.Contains(verbsByUpper[s.Upper], verbs[d]) {
				verbsByUpper[s.Upper] = append(verbsByUpper[s.Upper], verbs[d])
			}
			if !slices.Contains(lowersByUpper[s.Upper], lower.Name) {
				lowersByUpper[s.Upper] = append(lowersByUpper[s.Upper], lower.Name)
			}
		}
	}

	fix := stackFix(patterns, on, twice, need)
	first := "" // the interface whose condition has the whole fix
	var out []dataplane.Condition
	for _, c := range on {
		lowers := lowersByUpper[c.index]
		if c.index == 0 || len(lowers) == 0 {
			continue
		}

		if first == "" {
			first = c.Name
		} else if len(fix) > longFix {
			fix = fmt.Sprintf("do what the condition of %s says, which ends this one too", first)
		}

		slices.Sort(lowers)
		out = append(out, dataplane.Condition{
			Code:     dataplane.CodeInterfacesStacked,
			Severity: dataplane.Medium,
			Object:   c.Name,
			Text: fmt.Sprintf("packets that %s %s pass %s as well: a flow without an interface of its own counts each of them more than once",
				c.Name, strings.Join(verbsByUpper[c.index], " or "), someNames(lowers)),
			Fix: fix,
		})
	}
	return out
}

// countTwice reports whether a flow on all interfaces can match a packet on both links of a stack. A flow with a VLAN tag in its
// match, or untagged, matches on one side of a VLAN device only.
func (d demands) countTwice(dir flow.Direction, s links.Stack) bool {
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

// someNames lists at most eight names, and how many more there are.
func someNames(names []string) string {
	const most = 8
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// stackFix returns the step that ends all stacks: a list of interfaces on which each packet counts once. The list keeps the
// interfaces named by flows, then the lowest interface of each stack, because it sees the most packets.
func stackFix(patterns backend.Patterns, on []countedOn, twice map[flow.Direction][]links.Stack, need demands) string {
	const ownInterfaces = "give each flow an interface of its own (interface: NAME)"

	changes := make(map[string]dataplane.Interface) // by name; the zero value leaves the interface out
	for _, d := range []flow.Direction{flow.Ingress, flow.Egress} {
		drop, ok := dropped(d, on, twice[d], need)
		if !ok {
			return ownInterfaces + ": flows ask for both interfaces by name, so both must stay"
		}

		other := flow.Egress
		if d == flow.Egress {
			other = flow.Ingress
		}
		for _, c := range on {
			if !drop[c.index] {
				continue
			}

			// The interface goes on counting the other direction, unless both are dropped.
			changed := dataplane.Interface{}
			if _, otherDropped := changes[c.Name]; !otherDropped && c.counts(other) {
				changed = c.Interface
				changed.Direction = dataplane.InterfaceDirection(other.String())
			}
			changes[c.Name] = changed
		}
	}

	var leftOut []string
	for _, c := range on {
		if i, changed := changes[c.Name]; changed && i.Name == "" {
			leftOut = append(leftOut, c.Name)
		}
	}
	without := ""
	if len(leftOut) > 0 {
		without = ", without " + someNames(leftOut)
	}
	return "interfaces: [" + strings.Join(rewritten(patterns, on, changes), ", ") + "] in the configuration" + without +
		", then: flowtally apply -f FILE; or " + ownInterfaces
}

// dropped returns the interfaces that must stop counting in a direction to leave no stack. ok is false if there is no
// such choice, because flows name both interfaces of a stack.
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

	// Keep interfaces named by flows first, then the lowest ones.
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

		partnerKept := slices.ContainsFunc(partners[c.index], func(other int) bool { return kept[other] })
		switch {
		case !partnerKept:
			kept[c.index] = true
		case named(c):
			return nil, false
		default:
			drop[c.index] = true
		}
	}
	return drop, true
}

// rewritten returns the configured entries in YAML, with some interfaces changed or left out. If an interface of a pattern changes,
// all interfaces of the pattern get entries of their own, otherwise the pattern stays.
func rewritten(patterns backend.Patterns, on []countedOn, changes map[string]dataplane.Interface) (entries []string) {
	byEntry := make(map[string][]countedOn)
	changedEntry := make(map[string]bool)
	for _, c := range on {
		entry, configured := dataplane.FindInterface(patterns, c.Name)
		if !configured {
			continue
		}
		byEntry[entry.Name] = append(byEntry[entry.Name], c)
		if _, changed := changes[c.Name]; changed {
			changedEntry[entry.Name] = true
		}
	}

	for _, entry := range patterns {
		if !changedEntry[entry.Name] {
			entries = append(entries, entryText(entry))
			continue
		}
		for _, c := range byEntry[entry.Name] {
			i, changed := changes[c.Name]
			if !changed {
				i = c.Interface
			}
			if i.Name != "" {
				entries = append(entries, entryText(i))
			}
		}
	}
	return entries
}

// plainName matches names without need of quotes in YAML, even within a list.
var plainName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*[*]?$`)

// yamlWords are read by YAML as a boolean or as null unless they have quotes.
var yamlWords = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}

// entryText returns an interface as an entry of the configuration.
func entryText(i dataplane.Interface) string {
	name := i.Name
	if !plainName.MatchString(name) || slices.Contains(yamlWords, strings.ToLower(name)) {
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
