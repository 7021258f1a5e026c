package engine

import (
	"strings"
	"testing"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/probe"
)

// The result names the sources that a queue pair then gets, best first; a device that
// a configuration names and that is not there is a no.
func TestProbeNamesTheSourcesOfCompletionsBestFirst(t *testing.T) {
	s := newShimmedNIC(t)
	for _, c := range []struct {
		without []string
		limit   []string // of completion counters
		want    string
	}{
		{nil, nil, "counted by comp_cntr+external, comp_cntr, cq_ring, poll_cq"},
		{[]string{"efadv"}, nil, "counted by comp_cntr, cq_ring, poll_cq"},
		{nil, []string{"699"}, "counted by comp_cntr, cq_ring, poll_cq"}, // too narrow for words in the mirror
		{[]string{"comp_cntr"}, nil, "counted by cq_ring, poll_cq"},
		{[]string{"comp_cntr", "cq_ring"}, nil, "counted by poll_cq"},
	} {
		s.Env.Without, s.Env.CompCntrMax = c.without, c.limit
		s.Env.Set(t.Setenv)
		var got []probe.Result
		if err := s.Wire.Near.NS.Do(func() error {
			for _, r := range probeRDMA(t.Context(), ProbeOptions{RDMA: s.Config.RDMA, Interfaces: []string{"no-interface"}, Devices: []string{s.Device, "absent0"}}) {
				if r.Feature == FeatureCompletions {
					got = append(got, r)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if len(got) != 2 || got[0].Object != "rdma absent0" || got[0].Answer != probe.No {
			t.Fatalf("without %v: %+v; want a no of absent0, and an answer of %s", c.without, got, s.Device)
		}
		lab.Step(t, got[0].Fix, "correct queue_pairs in the configuration") // to the name of the next answer
		if r := got[1]; r.Answer != probe.Yes || r.Reason != c.want+"; on request by collapsed_cq; configure `type: rc` and `gid_index: 0`" {
			t.Errorf("without %v, up to %v: %+v, want %q", c.without, c.limit, r, c.want)
		}
	}
}

// Queue pairs alone ask nothing of an interface, and nothing of a device that they do not name.
func TestProbeAsksOnlyTheDevicesOfQueuePairs(t *testing.T) {
	s := newSoftNIC(t)
	s.Env.Devices = append(s.Env.Devices, ibvtest.Device{Name: "mlx5_other", Netdev: "lo"})
	s.Env.Set(t.Setenv)
	var got []probe.Result
	if err := s.Wire.Near.NS.Do(func() error {
		got = Probe(t.Context(), ProbeOptions{RDMA: s.Config.RDMA, DevicesOnly: true, Devices: []string{s.Device}})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	completions := 0
	for _, r := range got {
		if r.Backend == "xdp" || r.Backend == "rdma" && !strings.Contains(r.Object, s.Device) {
			t.Errorf("nobody asked for %+v", r)
		}
		if r.Feature == FeatureCompletions {
			completions++
		}
	}
	if completions != 1 {
		t.Errorf("%d answers about completions, want 1: %+v", completions, got)
	}
}
