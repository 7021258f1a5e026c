package links

import (
	"slices"
	"testing"
	"time"
)

func byIndex(list ...Link) map[int]Link {
	all := make(map[int]Link, len(list))
	for _, l := range list {
		all[l.Index] = l
	}
	return all
}

// Two counted links are a stack if a packet passes both in one direction, through any number of links between them.
func TestStacksFollowMastersAndParents(t *testing.T) {
	const port, bridge, bond, vlan, top = 2, 3, 4, 5, 6
	for _, c := range []struct {
		name    string
		all     map[int]Link
		counted []int
		want    []Stack
	}{
		{"a bridge and its port", byIndex(Link{Index: port, Master: bridge}, Link{Index: bridge, Kind: "bridge"}),
			[]int{port, bridge}, []Stack{{Lower: port, Upper: bridge}}},
		{"the bridge is not counted", byIndex(Link{Index: port, Master: bridge}, Link{Index: bridge, Kind: "bridge"}),
			[]int{port}, nil},
		{"two ports of one bridge", byIndex(Link{Index: port, Master: bridge}, Link{Index: 9, Master: bridge}, Link{Index: bridge, Kind: "bridge"}),
			[]int{port, 9}, nil},
		{"a VLAN device and its parent", byIndex(Link{Index: port}, Link{Index: vlan, Kind: "vlan", Parent: port}),
			[]int{vlan, port}, []Stack{{Lower: port, Upper: vlan, Tag: true}}},
		{"a VLAN device over a VLAN device: packets have a tag on both lower ones", byIndex(
			Link{Index: port}, Link{Index: vlan, Kind: "vlan", Parent: port}, Link{Index: top, Kind: "vlan", Parent: vlan}),
			[]int{port, vlan, top}, []Stack{{Lower: port, Upper: vlan}, {Lower: port, Upper: top, Tag: true}, {Lower: vlan, Upper: top, Tag: true}}},
		{"two VLAN devices of one parent", byIndex(Link{Index: port}, Link{Index: vlan, Kind: "vlan", Parent: port}, Link{Index: top, Kind: "vlan", Parent: port}),
			[]int{vlan, top}, nil},
		{"a macvlan", byIndex(Link{Index: port}, Link{Index: top, Kind: "macvlan", Parent: port}),
			[]int{port, top}, []Stack{{Lower: port, Upper: top}}},
		{"a VXLAN device and its lower device", byIndex(Link{Index: port}, Link{Index: top, Kind: "vxlan", Parent: port}),
			[]int{port, top}, []Stack{{Lower: port, Upper: top}}},
		{"a GRE tunnel that is bound to no device", byIndex(Link{Index: port}, Link{Index: top, Kind: "gre"}),
			[]int{port, top}, nil},
		{"a parent in another namespace, with the index of a link here", byIndex(Link{Index: port}, Link{Index: top, Kind: "macvlan", Parent: port, ParentElsewhere: true}),
			[]int{port, top}, nil},
		{"the two ends of a veth pair", byIndex(Link{Index: port, Kind: "veth", Parent: top}, Link{Index: top, Kind: "veth", Parent: port}),
			[]int{port, top}, nil},
		{"a child of IPoIB", byIndex(Link{Index: port}, Link{Index: top, Kind: "ipoib", Parent: port}),
			[]int{port, top}, nil},
		{"a VRF and its port", byIndex(Link{Index: port, Master: top}, Link{Index: top, Kind: "vrf"}),
			[]int{port, top}, nil},
		{"the datapath of Open vSwitch and its port", byIndex(Link{Index: port, Master: top}, Link{Index: top, Kind: "openvswitch"}),
			[]int{port, top}, nil},
		{"a master without a kind, like netvsc above a virtual function", byIndex(Link{Index: port, Master: top}, Link{Index: top}),
			[]int{port, top}, []Stack{{Lower: port, Upper: top}}},
		{"a bridge over a VLAN device over a bond", byIndex(
			Link{Index: port, Master: bond}, Link{Index: bond, Kind: "bond"}, Link{Index: vlan, Kind: "vlan", Parent: bond, Master: bridge}, Link{Index: bridge, Kind: "bridge"}),
			[]int{port, bond, bridge}, []Stack{{Lower: port, Upper: bridge, Tag: true}, {Lower: bond, Upper: bridge, Tag: true}, {Lower: port, Upper: bond}}},
		{"a bridge over a macvlan and a VLAN device of one parent: the way through the macvlan adds no tag", byIndex(
			Link{Index: port}, Link{Index: vlan, Kind: "vlan", Parent: port, Master: bridge}, Link{Index: top, Kind: "macvlan", Parent: port, Master: bridge}, Link{Index: bridge, Kind: "bridge"}),
			[]int{port, bridge}, []Stack{{Lower: port, Upper: bridge}}},
		{"a ring: a VXLAN device is a port of the bridge that it sends through", byIndex(Link{Index: bridge, Kind: "bridge"}, Link{Index: top, Kind: "vxlan", Parent: bridge, Master: bridge}),
			[]int{bridge, top}, []Stack{{Lower: top, Upper: bridge}, {Lower: bridge, Upper: top}}},
		{"a parent that is not known yet", byIndex(Link{Index: top, Kind: "macvlan", Parent: 77}), []int{top}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Stacks(c.all, c.counted)
			want := slices.Clone(c.want)
			slices.SortFunc(want, compareStacks)
			if !slices.Equal(got, want) {
				t.Errorf("stacks %+v, want %+v", got, want)
			}
		})
	}
}

// 254 VLAN devices are above a bridge of 20,000 ports. Walking from each counted link would take millions of steps.
func TestStacksOfTwentyThousandLinksAreFound(t *testing.T) {
	const bridge, ports, vlans = 1, 20_000, 254
	all := byIndex(Link{Index: bridge, Kind: "bridge"})
	for i := range ports {
		all[100+i] = Link{Index: 100 + i, Kind: "veth", Master: bridge}
	}
	counted := []int{100}
	for i := range vlans {
		index := 100 + ports + i
		all[index] = Link{Index: index, Kind: "vlan", Parent: bridge}
		counted = append(counted, index)
	}
	start := time.Now()
	got := Stacks(all, counted)
	t.Logf("%d links, %d counted: %d stacks in %v", len(all), len(counted), len(got), time.Since(start))
	if len(got) != vlans {
		t.Errorf("%d stacks, want %d: each VLAN device over the counted port", len(got), vlans)
	}
}
