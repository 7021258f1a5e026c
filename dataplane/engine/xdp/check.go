package xdp

import (
	"fmt"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/xdp"
)

// Check returns an error if flows take more rules than maxFlows, or more distinct masks than the tables hold. It
// does not call the kernel.
func Check(flows []flow.Flow, maxFlows int) error {
	masks, rules := make(map[xdp.Key]bool), 0
	anyPort := func(string) (uint16, error) { return 1, nil } // all ports have one mask
	for _, f := range flows {
		compiled, err := compile(backend.Placed{Flow: f}, 0, anyPort)
		if err != nil {
			return fmt.Errorf("flow %q: %w", f.Name, err)
		}
		for _, r := range compiled {
			masks[r.Mask] = true
		}
		if rules += len(compiled); rules > maxFlows {
			return fmt.Errorf("flow %q: %w: with it the flows take more than the %d rules that the tables of XDP are made for; raise xdp.max_flows",
				f.Name, dataplane.ErrFull, maxFlows)
		}
		if len(masks) > xdp.MaxMasks {
			return fmt.Errorf("flow %q: %w: %w: with it the flows have more than %d", f.Name, dataplane.ErrFull, dataplane.ErrMasks, xdp.MaxMasks)
		}
	}
	return nil
}
