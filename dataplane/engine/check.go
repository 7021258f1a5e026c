package engine

import (
	"cmp"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// Check finds more rules, or more distinct masks, than the tables of XDP hold, in a valid configuration.
// It includes flows of backend auto, which have rules in XDP also while a device counts them: New
// refuses them on a host without RDMA. Check calls neither the kernel nor a device.
func Check(cfg dataplane.Config) error {
	cfg = withDefaults(cfg)
	inXDP := func(f flow.Flow) bool {
		return slices.Contains(candidates(cmp.Or(f.Backend, cfg.Backend)), "xdp")
	}
	var flows []flow.Flow
	for _, f := range cfg.Flows {
		if inXDP(f) {
			flows = append(flows, f)
		}
	}
	return xdp.Check(flows, cfg.XDP.MaxFlows)
}
