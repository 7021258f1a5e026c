package links

import "slices"

// Link is a network interface, with the links above and below it.
type Link struct {
	Index  int
	Name   string
	Kind   string // as "ip -details link" shows it: "bridge", "vlan"; empty for most hardware
	Master int    // index of its bridge, bond or team; 0: it is no port
	Parent int    // index of the device that it sends and receives through; 0: none is known
	// ParentElsewhere: Parent is an index of another network namespace.
	ParentElsewhere bool
}

// peers are the kinds with the other end of a cable as their parent. Each packet passes the ends in different directions.
var peers = []string{"veth", "netkit", "vxcan", "netdevsim"}

// apart are the kinds without packets on the hooks of their parent. A child of IPoIB has queue pairs of its own.
var apart = []string{"ipoib"}

// bypassed are the kinds of masters without the packets of their ports on their hooks. A VRF takes over a received packet
// behind the hooks. The datapath of Open vSwitch hands packets to its internal ports, and its own device sees none.
var bypassed = []string{"vrf", "openvswitch"}

// Stack is two links with common packets: a packet passes both in one direction.
type Stack struct {
	Lower, Upper int // indexes
	// Tag: a packet has a VLAN tag on the lower link and none on the upper one, because a VLAN device lies between the
	// two and none above.
	Tag bool
}

// Stacks returns every stack among the counted links, sorted by upper and lower index. Links between the two need not be
// counted. all are the links of one network namespace, by index. The cost grows with the number of links, not of pairs.
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

// aboveEach returns for each link the counted links above it, as positions in counted. Without vlans, it takes no way
// through a VLAN device to its parent.
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

	// A link that learns of another counted link above it goes into the queue again. The walk also ends in a ring: each
	// link learns of a counted link once. A VXLAN device forms a ring as a port of the bridge below it.
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
			if i, counted := position[upper]; counted {
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

// hasLower reports whether the packets of the link pass its parent as well, in this namespace.
func (l Link) hasLower() bool {
	parentHere := l.Parent != 0 && l.Parent != l.Index && !l.ParentElsewhere
	return parentHere && !slices.Contains(peers, l.Kind) && !slices.Contains(apart, l.Kind)
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

// add adds the numbers of another set, and reports whether one is new. The other set may be nil.
func (s set) add(other set) (grown bool) {
	for i, word := range other {
		grown = grown || word&^s[i] != 0
		s[i] |= word
	}
	return grown
}
