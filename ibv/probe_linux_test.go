//go:build cgo

package ibv

import (
	"strings"
	"testing"

	"github.com/flowtally/flowtally/probe"
)

// The devices lack one feature each. The library must close afterwards, so no object may be left.
func TestProbeReportsEachMissingFeature(t *testing.T) {
	libs, wire := softLibs(t), newWire(t)
	const yes, no, unknown = probe.Yes, probe.No, probe.Inconclusive
	for _, c := range []struct {
		name    string
		library string
		env     []string
		want    [6]probe.Answer // raw, flows, counters, dont_trap, egress, comp_cntr
	}{
		{"everything", libs.Shim, nil, [6]probe.Answer{yes, yes, yes, yes, yes, yes}},
		{"the host's, before 65", "", nil, [6]probe.Answer{yes, yes, yes, yes, yes, no}},
		{"no counters", libs.Shim, []string{"WITHOUT", "counters"}, [6]probe.Answer{yes, yes, no, no, no, yes}},
		{"no flows", libs.Shim, []string{"WITHOUT", "flows"}, [6]probe.Answer{yes, no, no, no, no, yes}},
		{"no DONT_TRAP", libs.Shim, []string{"WITHOUT", "dont_trap"}, [6]probe.Answer{yes, yes, yes, no, yes, yes}},
		{"no EGRESS", libs.Shim, []string{"WITHOUT", "egress"}, [6]probe.Answer{yes, yes, yes, yes, no, yes}},
		{"no completion counters", libs.Shim, []string{"WITHOUT", "comp_cntr"}, [6]probe.Answer{yes, yes, yes, yes, yes, no}},
		{"counters that cannot be made", libs.Shim, []string{"FAIL", "ibv_create_comp_cntr=EOPNOTSUPP"}, [6]probe.Answer{yes, yes, yes, yes, yes, no}},
		{"counters that are all taken", libs.Shim, []string{"FAIL", "ibv_create_comp_cntr=ENOMEM"}, [6]probe.Answer{yes, yes, yes, yes, yes, unknown}},
		{"counters that cannot be read", libs.Shim, []string{"FAIL", "ibv_read_comp_cntr=EIO"}, [6]probe.Answer{yes, yes, yes, yes, yes, unknown}},
		{"like rxe", libs.Shim, []string{"WITHOUT", "raw,flows,counters,comp_cntr"}, [6]probe.Answer{no, no, no, no, no, no}},
		{"no privilege", libs.Shim, []string{"FAIL", "ibv_create_qp=EPERM@1-1,ibv_create_flow=EPERM"}, [6]probe.Answer{no, unknown, unknown, unknown, unknown, yes}},
		{"a firmware in trouble", libs.Shim, []string{"FAIL", "ibv_create_flow=EIO"}, [6]probe.Answer{yes, unknown, unknown, unknown, unknown, yes}},
		{"cannot be opened", libs.Shim, []string{"FAIL", "ibv_open_device=EIO"}, [6]probe.Answer{unknown, unknown, unknown, unknown, unknown, unknown}},
		{"no queue pairs", libs.Shim, []string{"FAIL", "ibv_create_qp=ENOMEM"}, [6]probe.Answer{unknown, unknown, unknown, unknown, unknown, yes}},
		{"an old kernel, which knows no flags", libs.Shim, []string{"FAIL", "ibv_create_flow=EINVAL@3"}, [6]probe.Answer{yes, yes, yes, no, no, yes}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newLibrary(t, wire, c.library, c.env...)
			var got []probe.Result
			b.check(b.wire.Near.NS.Do(func() error { got = Probe(b.lib, device()); return nil }))
			features := []string{FeatureRaw, FeatureFlows, FeatureCounters, FeatureDontTrap, FeatureEgress, FeatureCompCntrs}
			if len(got) != len(features) {
				t.Fatalf("%d answers: %v", len(got), got)
			}
			for i, r := range got {
				if r.Feature != features[i] || r.Object != device() || r.Answer != c.want[i] {
					t.Errorf("%s on %s: %v (%s), want %v of %s", r.Feature, r.Object, r.Answer, r.Reason, c.want[i], features[i])
				}
				if r.Answer == no && (r.Reason == "" || r.Fix == "") {
					t.Errorf("%s: a no without its reason %q or fix %q", r.Feature, r.Reason, r.Fix)
				}
				if r.Feature == FeatureCompCntrs && r.Answer == yes && !strings.Contains(r.Reason, "up to 281474976710655, of SEND|RECV") {
					t.Errorf("%s: %q does not say what they can do", r.Feature, r.Reason)
				}
				if r.Answer == unknown && !strings.Contains(r.Reason, "ibv_") {
					t.Errorf("%s: %q does not name the verb that kept it from asking", r.Feature, r.Reason)
				}
			}
		})
	}
}
