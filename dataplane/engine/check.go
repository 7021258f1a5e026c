package engine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// Check finds flows that no backend counts, and more rules than the tables of XDP hold, in a valid configuration.
// It includes flows of backend auto, which have rules in XDP also while a device counts them: New
// refuses them on a host without RDMA. Check calls neither the kernel nor a device.
func Check(cfg dataplane.Config) error {
	cfg = withDefaults(cfg)
	for _, f := range cfg.Flows {
		if slices.Equal(candidates(cmp.Or(f.Backend, cfg.Backend)), []string{"sim"}) {
			continue
		}
		if err := f.Match.RefuseNamedSets(); err != nil {
			return fmt.Errorf("flow %q: %w", f.Name, err)
		}
	}
	return xdp.Check(flowsOfXDP(cfg), cfg.XDP.MaxFlows)
}

// Plan computes the classifier that XDP would have for the flows of a valid configuration, and its cost. The error
// satisfies errors.Is(err, dataplane.ErrDense) if too many of them match one packet, or
// dataplane.ErrCostly if one packet could touch more than xdp.worst_cost. It calls no kernel.
func Plan(cfg dataplane.Config) (*xdp.Plan, error) {
	cfg = withDefaults(cfg)
	return xdp.NewPlan(flowsOfXDP(cfg), cfg.XDP.MaxFlows, cfg.XDP.WorstCost)
}

// InXDP is the number of flows of a configuration that may have rules in XDP.
func InXDP(cfg dataplane.Config) int { return len(flowsOfXDP(withDefaults(cfg))) }

// Hidden returns the flows of a valid configuration that can count no packet, each with the names of flows that win over
// it on every packet that it matches. Some hidden flows are not found: see package xdp.
func Hidden(cfg dataplane.Config) (map[string][]string, error) { return xdp.Hidden(flowsOfXDP(cfg)) }

// Stacked returns a condition for each interface that will count the packets of another interface again, in the network
// namespace of the calling thread. It takes no privilege.
func Stacked(cfg dataplane.Config) ([]dataplane.Condition, error) {
	return xdp.Stacked(cfg.Interfaces, flowsOfXDP(withDefaults(cfg)))
}

// flowsOfXDP returns the flows that may have rules in XDP.
func flowsOfXDP(cfg dataplane.Config) (flows []flow.Flow) {
	for _, f := range cfg.Flows {
		if slices.Contains(candidates(cmp.Or(f.Backend, cfg.Backend)), "xdp") {
			flows = append(flows, f)
		}
	}
	return flows
}
