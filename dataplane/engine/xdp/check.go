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

// Check returns an error if flows take more than maxFlows rules. It makes no system call, so it can check a configuration for
// another host.
func Check(flows []flow.Flow, maxFlows int) error {
	rules := 0
	anyPort := func(string) (uint16, error) { return 1, nil } // the number of rules does not depend on it
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

// numbered returns a port function for compile that works without a kernel: it numbers interfaces as they come.
func numbered() func(name string) (uint16, error) {
	ports := make(map[string]uint16)
	return func(name string) (uint16, error) {
		if ports[name] == 0 {
			ports[name] = uint16(len(ports) + 1)
		}
		return ports[name], nil
	}
}

// mostMasks bounds the work of Hidden, which looks each rule up under each mask. Behind the bound it finds nothing.
const mostMasks = 256

// Hidden finds flows that can never count a packet, because others win on every packet of theirs. It returns the names of these
// others by hidden flow. Callers pass the flows in the order of their addition.
//
// It does not find all hidden flows: each rule must be covered by a single rule, not by several together.
func Hidden(flows []flow.Flow) (map[string][]string, error) {
	port := numbered()
	order := make([]int, len(flows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(flows[a].Priority, flows[b].Priority) })

	flowByKey := make(map[xdp.Key]map[xdp.Key]string) // by mask: the first flow with that key
	out := make(map[string][]string)
	for _, at := range order {
		f := flows[at]
		rules, err := compile(backend.Placed{Flow: f}, 0, port)
		if err != nil {
			return nil, fmt.Errorf("flow %q: %w", f.Name, err)
		}
		var by []string
		for _, r := range rules {
			name, covered := coveredBy(flowByKey, r)
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
				continue // with a range of ports it covers only some packets of its key
			}
			if flowByKey[r.Mask] == nil {
				if len(flowByKey) == mostMasks {
					return out, nil
				}
				flowByKey[r.Mask] = make(map[xdp.Key]string)
			}
			if _, has := flowByKey[r.Mask][r.Key]; !has {
				flowByKey[r.Mask][r.Key] = f.Name
			}
		}
	}
	return out, nil
}

// coveredBy returns a flow with a rule that matches every packet of r: of several, the first by name, so that each run prints
// the same one.
func coveredBy(flowByKey map[xdp.Key]map[xdp.Key]string, r xdp.Rule) (name string, covered bool) {
	for mask, flows := range flowByKey {
		if mask.Under(r.Mask) != mask {
			continue // it compares bits that r leaves open
		}
		if by, has := flows[r.Key.Under(mask)]; has && (!covered || by < name) {
			name = by
			covered = true
		}
	}
	return name, covered
}
