package engine

import (
	"path/filepath"
	"testing"

	"github.com/flowtally/flowtally/probe"
)

func TestProbe(t *testing.T) {
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
		if r.Object != object || r.Answer != probe.Yes {
			t.Errorf("%+v, want yes of %s", r, object)
		}
	}
	s.Env.Without = []string{"dont_trap", "devx"}
	no := 0
	for _, r := range ask() {
		if r.Answer == probe.No {
			no++
			if r.Reason == "" || r.Fix == "" {
				t.Errorf("%+v: no reason, or no fix", r)
			}
		}
	}
	if no != 2 {
		t.Errorf("%d times no, want of DONT_TRAP and of DevX", no)
	}
	if r := ask("eth7"); len(r) != 1 || r[0].Answer != probe.No || r[0].Fix == "" {
		t.Errorf("of an interface without a device: %+v", r)
	}
	s.Config.RDMA.Library = filepath.Join(t.TempDir(), "nosuch.so")
	if r := ask(); len(r) != 1 || r[0].Object != "libibverbs" || r[0].Answer != probe.No || r[0].Fix == "" {
		t.Errorf("without a library: %+v", r)
	}
}
