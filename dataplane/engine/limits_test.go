package engine

import (
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/xdp"
)

// A configuration that Validate accepts is not refused by the tables.
func TestTheTablesTakeAsManyFlowsAsAConfigurationMayAskFor(t *testing.T) {
	if dataplane.MostFlows != xdp.MostRules {
		t.Errorf("xdp.max_flows goes up to %d, and the tables hold %d", dataplane.MostFlows, xdp.MostRules)
	}
}
