package engine

import (
	"testing"

	"github.com/flowtally/flowtally/dataplane/engine/rdma"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/probe"
)

// Without a mode that counts flows, such as on an EFA, no counter is read, and a probe tells nothing about reads.
func TestADeviceCountsFlowsByDevXOrBesideTheKernel(t *testing.T) {
	for _, c := range []struct {
		name string
		yes  []string
		want bool
	}{
		{"DevX alone", []string{rdma.FeatureDevX}, true},
		{"copies of the kernel's packets", []string{ibv.FeatureFlows, ibv.FeatureCounters, ibv.FeatureDontTrap}, true},
		{"sent packets", []string{ibv.FeatureFlows, ibv.FeatureCounters, ibv.FeatureEgress}, true},
		{"flows that take packets away from the kernel", []string{ibv.FeatureFlows, ibv.FeatureCounters}, false},
		{"flows that do not count", []string{ibv.FeatureFlows, ibv.FeatureDontTrap, ibv.FeatureEgress}, false},
		{"queue pairs", []string{ibv.FeatureCompCntrs, FeatureCompletions}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			results := []probe.Result{
				{Object: "another", Feature: rdma.FeatureDevX, Answer: probe.Yes},
				{Object: "this", Feature: rdma.FeatureDevX, Answer: probe.No},
			}
			for _, f := range c.yes {
				results = append(results, probe.Result{Object: "this", Feature: f, Answer: probe.Yes})
			}
			if got := countsFlows(results, "this"); got != c.want {
				t.Errorf("it counts flows: %t, want %t", got, c.want)
			}
		})
	}
}
