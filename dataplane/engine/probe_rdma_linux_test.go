package engine

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane/engine/trial"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/probe"
)

func TestProbeOfRDMAGivesAFixWithEachNo(t *testing.T) {
	s := newSoftNIC(t)
	ask := func(interfaces ...string) (out []probe.Result) {
		t.Helper()
		s.Env.Set(t.Setenv)
		if err := s.Wire.Near.NS.Do(func() error {
			out = probeRDMA(t.Context(), ProbeOptions{RDMA: s.Config.RDMA, Interfaces: interfaces})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return out
	}
	object := "rdma " + s.Device + " (" + s.Wire.Near.Name + ")"
	results := ask(s.Wire.Near.Name)
	if len(results) < 6 {
		t.Errorf("%d answers: %+v", len(results), results)
	}
	for _, r := range results {
		want := probe.Yes
		if r.Feature == ibv.FeatureCompCntrs {
			want = probe.No // ConnectX has none
		}
		if r.Object != object || r.Answer != want {
			t.Errorf("%+v, want %s of %s", r, want, object)
		}
	}
	s.Env.Without = []string{"dont_trap", "devx"}
	no := 0
	for _, r := range ask() {
		if r.Answer == probe.No {
			no++
			t.Logf("%+v", r)
			if r.Reason == "" || r.Fix == "" {
				t.Errorf("%+v: no reason, or no fix", r)
			}
		}
	}
	if no != 3 {
		t.Errorf("%d times no, want of DONT_TRAP, of DevX and of completion counters", no)
	}
	if r := ask("eth7"); len(r) != 1 || r[0].Answer != probe.No || r[0].Fix == "" {
		t.Errorf("of an interface without a device: %+v", r)
	}
	s.Config.RDMA.Library = filepath.Join(t.TempDir(), "nosuch.so")
	if r := ask(); len(r) != 1 || r[0].Object != "libibverbs" || r[0].Answer != probe.No || r[0].Fix == "" {
		t.Errorf("without a library: %+v", r)
	}
}

// A library that crashes or hangs in a verb of a probe alone leaves the features of that probe inconclusive, with the
// verb. The other probes give the results that they give without the fault.
func TestProbeOfALibraryThatCrashesIsInconclusive(t *testing.T) {
	for _, c := range []struct {
		name  string
		verb  string
		fault ibvtest.Fault // of the verb's call to the kernel
		delay ibvtest.Delay
		how   string
	}{
		{name: "a counter", verb: "ibv_create_counters", fault: ibvtest.Fault{Verb: "COUNTERS_CREATE", Errno: "ABORT"}, how: "aborts, as FAIL says"},
		{name: "a flow", verb: "ibv_create_flow", fault: ibvtest.Fault{Verb: "EX_CREATE_FLOW", Errno: "ABORT"}, how: "exit status 2"},
		{name: "a queue pair", verb: "ibv_create_qp", fault: ibvtest.Fault{Verb: "QP_CREATE", Errno: "EXIT"}, how: "exit status 0"},
		{name: "a verb that does not return", verb: "ibv_create_counters", delay: ibvtest.Delay{Verb: "COUNTERS_CREATE", Time: time.Hour}, how: "had not returned after 5s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.delay.Verb != "" && testing.Short() {
				t.Skip("takes 5 s")
			}
			s := newSoftNIC(t)
			if c.fault.Verb != "" {
				s.Env.Fail = []ibvtest.Fault{c.fault}
			} else {
				s.Env.Delay = []ibvtest.Delay{c.delay}
			}
			s.Env.Set(t.Setenv)
			answers := make(map[string]probe.Result)
			if err := s.Wire.Near.NS.Do(func() error {
				for _, r := range probeRDMA(t.Context(), ProbeOptions{RDMA: s.Config.RDMA, Interfaces: []string{s.Wire.Near.Name}, Trial: SelfTrial()}) {
					answers[r.Feature] = r
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			inconclusive := []string{ibv.FeatureRaw, ibv.FeatureFlows, ibv.FeatureCounters, ibv.FeatureDontTrap, ibv.FeatureEgress, ibv.FeatureCompCntrs}
			known := []string{"DevX", FeatureCompletions}
			if c.verb == "ibv_create_qp" { // a probe of its own makes queue pairs of each type
				inconclusive = append(inconclusive, FeatureCompletions)
				known = []string{"DevX"}
			}
			for _, f := range inconclusive {
				r := answers[f]
				if r.Answer != probe.Inconclusive || !strings.Contains(r.Reason, " in "+c.verb) || !strings.Contains(r.Reason, c.how) || r.Fix != trial.FixCrash {
					t.Errorf("%s: %+v, want inconclusive, %q in %s", f, r, c.how, c.verb)
				}
			}
			for _, f := range known {
				if r := answers[f]; r.Answer != probe.Yes {
					t.Errorf("%s: %+v, want yes", f, r)
				}
			}
		})
	}
}
