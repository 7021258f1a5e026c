package cli

import (
	"slices"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/probe"
)

func TestStrictDoctorNeedsRDMAOnlyIfTheConfigurationDoes(t *testing.T) {
	pairs := dataplane.Config{QueuePairs: []dataplane.QueuePair{{Name: "a", Device: "rxe0"}, {Name: "b", Device: "rxe0"}, {Name: "c", Device: "rdmap0s6"}}}
	for _, c := range []struct {
		name  string
		cfg   dataplane.Config
		needs []string // of backend rdma
	}{
		{"auto does without RDMA", dataplane.Config{}, nil},
		{"backend rdma", dataplane.Config{Backend: "rdma"}, []string{engine.FeatureRDMA, engine.FeatureRDMADevices, engine.FeatureCompletions, "flows"}},
		{"a flow by rdma", dataplane.Config{Flows: []flow.Flow{{Backend: "rdma"}}}, []string{engine.FeatureRDMA, engine.FeatureRDMADevices, engine.FeatureCompletions, "flows"}},
		{"queue pairs alone", pairs, []string{engine.FeatureRDMA, engine.FeatureRDMADevices, engine.FeatureCompletions}},
	} {
		for _, feature := range []string{engine.FeatureRDMA, engine.FeatureRDMADevices, engine.FeatureCompletions, "flows"} {
			if got := isAskedFor(c.cfg, probe.Result{Backend: "rdma", Feature: feature}); got != slices.Contains(c.needs, feature) {
				t.Errorf("%s: needs %q: %t", c.name, feature, got)
			}
		}
		if !isAskedFor(c.cfg, probe.Result{Backend: "xdp", Feature: "TCX"}) || !isAskedFor(c.cfg, probe.Result{Feature: "mirror writable"}) {
			t.Errorf("%s: does without what is not RDMA", c.name)
		}
	}
	if got := devicesOf(pairs); !slices.Equal(got, []string{"rxe0", "rdmap0s6"}) {
		t.Errorf("devices %v", got)
	}
}
