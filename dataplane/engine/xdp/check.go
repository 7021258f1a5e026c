package xdp

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/xdp"
)

// Check returns an error if flows take more rules than maxFlows. It does not call the kernel.
func Check(flows []flow.Flow, maxFlows int) error {
	rules := 0
	anyPort := func(string) (uint16, error) { return 1, nil } // all ports have one mask
	for _, f := range flows {
		compiled, err := compile(backend.Placed{Flow: f}, 0, anyPort)
		if err != nil {
			return fmt.Errorf("flow %q: %w", f.Name, err)
		}
		if rules += len(compiled); rules > maxFlows {
			return fmt.Errorf("flow %q: %w: with it the flows take more than the %d rules that the tables of XDP are made for; raise xdp.max_flows",
				f.Name, dataplane.ErrFull, maxFlows)
		}
	}
	return nil
}

// numbered numbers the interfaces by their names.
func numbered() func(name string) (uint16, error) {
	ports := make(map[string]uint16)
	return func(name string) (uint16, error) {
		if ports[name] == 0 {
			ports[name] = uint16(len(ports) + 1)
		}
		return ports[name], nil
	}
}

// mostMasks bounds the work of Hidden, which compares each rule with the rules of each mask.
const mostMasks = 256

// Hidden returns the flows that can count no packet, each with the names of flows that win over it on every packet that it
// matches. It finds a rule that one rule of another flow covers, and not one that only several rules cover together.
// flows are in the order in which they are added.
func Hidden(flows []flow.Flow) (map[string][]string, error) {
	port := numbered()
	order := make([]int, len(flows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(flows[a].Priority, flows[b].Priority) })
	masks := make(map[xdp.Key]map[xdp.Key]string) // the names of the flows before, by mask and key
	out := make(map[string][]string)
	for _, at := range order {
		f := flows[at]
		rules, err := compile(backend.Placed{Flow: f}, 0, port)
		if err != nil {
			return nil, fmt.Errorf("flow %q: %w", f.Name, err)
		}
		var by []string
		for _, r := range rules {
			name, covered := coveredBy(masks, r)
			if !covered {
				by = nil
				break
			}
			if !slices.Contains(by, name) {
				by = append(by, name)
			}
		}
		if len(by) > 0 {
			out[f.Name] = by
		}
		for _, r := range rules {
			if r.Ports != [2]xdp.Ports{} {
				continue // it covers a part of the packets of its mask
			}
			if masks[r.Mask] == nil {
				if len(masks) == mostMasks {
					return out, nil
				}
				masks[r.Mask] = make(map[xdp.Key]string)
			}
			if _, there := masks[r.Mask][r.Key]; !there {
				masks[r.Mask][r.Key] = f.Name
			}
		}
	}
	return out, nil
}

// coveredBy returns the flow of a rule that matches every packet of r.
func coveredBy(masks map[xdp.Key]map[xdp.Key]string, r xdp.Rule) (name string, is bool) {
	for mask, keys := range masks {
		if mask.Under(r.Mask) != mask {
			continue
		}
		if by, there := keys[r.Key.Under(mask)]; there && (!is || by < name) {
			name, is = by, true
		}
	}
	return name, is
}
