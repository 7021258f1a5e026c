package links

import "slices"

// Link is a network interface and its place among the others.
type Link struct {
	Index  int
	Name   string
	Kind   string // as "ip -details link" shows it: "bridge", "vlan"; empty for most hardware
	Master int    // index of the bridge, bond or team that the link is a port of; 0: of none
	Parent int    // index of the device that the link sends through and receives from; 0: none is known
	// ParentElsewhere: Parent is an index of another network namespace.
	ParentElsewhere bool
}

// peers are the kinds whose parent is the other end of a cable: a packet that one end receives is one that the other
// end sends.
var peers = []string{"veth", "netkit", "vxcan", "netdevsim"}

// apart are the kinds whose packets do not pass the hooks of their parent: a child of IPoIB has queue pairs of its own.
var apart = []string{"ipoib"}

// bypassed are the kinds of masters whose hooks do not see the packets of their ports. A VRF takes a received packet over
// behind the hooks. The datapath of Open vSwitch hands packets to its internal ports, and its own device sees none.
var bypassed = []string{"vrf", "openvswitch"}

// Stack is two links of which the upper one sees packets that pass the lower one as well, in the same direction.
type Stack struct {
	Lower, Upper int // indexes
	// Tag: a VLAN device lies between the two and none is above, so that a packet has a VLAN tag on the lower link, and
	// none on the upper one.
	Tag bool
}

// Stacks returns every stack of two among the counted links, by upper and lower index. Links between the two need not be
// counted. all are the links of one network namespace by index. The cost grows with their number, and not with the number
// of pairs of links.
func Stacks(all map[int]Link, counted []int) []Stack {
	above := aboveEach(all, counted, true)
	withoutTag := aboveEach(all, counted, false)
	carriesTags := make(map[int]bool)
	for _, l := range all {
		if l.Kind == "vlan" && l.hasLower() {
			carriesTags[l.Parent] = true
		}
	}

	var out []Stack
	for _, lower := range counted {
		for i, upper := range counted {
			if upper != lower && above[lower].has(i) {
				out = append(out, Stack{Lower: lower, Upper: upper, Tag: !withoutTag[lower].has(i) && !carriesTags[upper]})
			}
		}
	}
	slices.SortFunc(out, compareStacks)
	return out
}

// aboveEach returns for each link the counted links above it, as positions in counted. Without vlans, ways through a VLAN
// device to its parent are left out.
func aboveEach(all map[int]Link, counted []int, vlans bool) map[int]set {
	below := belowEach(all, vlans)
	above := make(map[int]set)
	queue := slices.Clone(counted)
	queued := make(map[int]bool, len(counted))
	position := make(map[int]int, len(counted))
	for i, index := range counted {
		queued[index] = true
		position[index] = i
	}

	// A link is queued again when it has learned of another counted link above it. That ends also where links form a
	// ring, as a VXLAN device that is a port of the bridge that it sends through.
	for len(queue) > 0 {
		upper := queue[0]
		queue = queue[1:]
		queued[upper] = false
		for _, lower := range below[upper] {
			known := above[lower]
			if known == nil {
				known = newSet(len(counted))
				above[lower] = known
			}
			learned := known.add(above[upper])
			if i, is := position[upper]; is {
				learned = known.addOne(i) || learned
			}
			if learned && !queued[lower] {
				queued[lower] = true
				queue = append(queue, lower)
			}
		}
	}
	return above
}

// belowEach returns the links directly below each link.
func belowEach(all map[int]Link, vlans bool) map[int][]int {
	below := make(map[int][]int)
	for index, l := range all {
		if l.Master != 0 && !slices.Contains(bypassed, all[l.Master].Kind) {
			below[l.Master] = append(below[l.Master], index)
		}
		if l.hasLower() && (vlans || l.Kind != "vlan") {
			below[index] = append(below[index], l.Parent)
		}
	}
	return below
}

// hasLower reports whether the packets of the link pass its parent as well, and whether that is in this namespace.
func (l Link) hasLower() bool {
	return l.Parent != 0 && l.Parent != l.Index && !l.ParentElsewhere && !slices.Contains(peers, l.Kind) && !slices.Contains(apart, l.Kind)
}

func compareStacks(a, b Stack) int {
	return slices.Compare([]int{a.Upper, a.Lower}, []int{b.Upper, b.Lower})
}

// set is a set of small numbers.
type set []uint64

func newSet(size int) set { return make(set, (size+63)/64) }

func (s set) has(i int) bool { return s != nil && s[i/64]&(1<<(i%64)) != 0 }

// addOne adds a number, and reports whether it is new.
func (s set) addOne(i int) bool {
	if s.has(i) {
		return false
	}
	s[i/64] |= 1 << (i % 64)
	return true
}

// add adds the numbers of another set, which may be nil, and reports whether one is new.
func (s set) add(other set) (grown bool) {
	for i, word := range other {
		grown = grown || word&^s[i] != 0
		s[i] |= word
	}
	return grown
}
