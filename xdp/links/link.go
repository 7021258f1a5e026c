package links

import "slices"

// Link is a network interface, with the links above and below it.
type Link struct {
	Index  int
	Name   string
	Kind   string // as shown by "ip -details link": "bridge", "vlan"; empty for most hardware
	Master int    // index of the bridge, bond or team of which it is a port, or 0
	Parent int    // index of the device through which it sends and receives, or 0 if unknown
	// ParentElsewhere is set if the parent is in another network namespace, where Parent is its index.
	ParentElsewhere bool
}

// peers are kinds of device whose parent is the other end of a virtual cable. A packet passes the two ends in opposite directions.
var peers = []string{"veth", "netkit", "vxcan", "netdevsim"}

// apart are kinds of device whose packets skip the hooks of their parent. A child of IPoIB has its own queue pairs.
var apart = []string{"ipoib"}

// bypassed are kinds of master whose hooks do not see the packets of their ports. A VRF takes received packets after the hooks. The
// datapath of Open vSwitch hands packets to its internal ports, and its own device sees none.
var bypassed = []string{"vrf", "openvswitch"}

// Stack is a pair of links such that packets pass both in the same direction. Counting on both counts these packets twice.
type Stack struct {
	Lower, Upper int // indexes
	// Tag is set if packets have a VLAN tag on the lower link and none on the upper one. That is so if there is a VLAN device
	// between the two, and none above.
	Tag bool
}

// Stacks returns every stack among the counted links, sorted by upper and lower index. There may be other links between the two. all
// are the links of one network namespace, by index. The cost grows with the number of links, and not with the number of pairs.
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

// aboveEach returns for each link the counted links above it, as positions in counted. Unless vlans is set, it ignores connections
// between a VLAN device and its parent.
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

	// When a link learns of another counted link above it, put it into the queue again. That ends even if links form a ring, for
	// example a VXLAN device as a port of the bridge below it, because a link learns of each counted link only once.
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

// hasLower reports whether the packets of the link also pass its parent, in this namespace.
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
