package engine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/xdp"
)

// Check finds more rules, or more distinct masks, than the tables of XDP hold, in a valid configuration.
// It includes flows of backend auto, which have their rules in XDP also while a device counts them: New
// refuses them on a host without RDMA. Check asks neither the kernel nor a device.
func Check(cfg dataplane.Config) error {
	cfg = withDefaults(cfg)
	masks, rules := make(map[xdp.Key]bool), 0
	anyPort := func(string) (uint16, error) { return 1, nil } // all have one mask
	for _, f := range cfg.Flows {
		if !slices.Contains(choices(cmp.Or(f.Backend, cfg.Backend)), "xdp") {
			continue
		}
		compiled, err := compile(backend.Placed{Flow: f}, 0, anyPort)
		if err != nil {
			return fmt.Errorf("flow %q: %w", f.Name, err)
		}
		for _, r := range compiled {
			masks[r.Mask] = true
		}
		if rules += len(compiled); rules > cfg.XDP.MaxFlows {
			return fmt.Errorf("flow %q: %w: with it the flows take more than the %d rules that the tables of XDP are made for; raise xdp.max_flows",
				f.Name, dataplane.ErrFull, cfg.XDP.MaxFlows)
		}
		if len(masks) > xdp.MaxMasks {
			return fmt.Errorf("flow %q: %w: %w: with it the flows have more than %d", f.Name, dataplane.ErrFull, dataplane.ErrMasks, xdp.MaxMasks)
		}
	}
	return nil
}
