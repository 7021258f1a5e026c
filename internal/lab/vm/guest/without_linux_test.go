//go:build vm

package guest

import (
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/lab/demo"
	"github.com/flowtally/flowtally/plugin"
)

// The programs are built with cgo and run without the library. doctor names
// it, an instance that does not use RDMA does not mention it, and one that does returns the reason.
func TestWithoutLibibverbsProgramsRunAndNameIt(t *testing.T) {
	named := false
	for _, c := range doctor(t) {
		if strings.Contains(c.Object, "libibverbs") {
			named = true
			t.Logf("%+v", c)
			if c.Answer != "no" || c.Reason == "" || !strings.Contains(c.Fix, "install") {
				t.Errorf("%+v: want a no with reason and fix", c)
			}
		}
	}
	if !named {
		t.Error("doctor does not name libibverbs")
	}
	newPair(t, "v0")
	cfg := dataplane.Config{
		Instance: "without", Interfaces: []dataplane.Interface{{Name: "v0"}}, Flows: flows(t, "v0", "ipv4 udp dport 53"),
	}
	t.Cleanup(func() { demo.Sweep(cfg.Instance) })
	svc, err := plugin.Launch(t.Context(), plugin.Options{Path: program(t, "flowtally-plugin"), Config: cfg, StartTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	placements, err := svc.Placements(t.Context())
	if err != nil || len(placements) != 1 || placements[0].Source.Backend != "xdp" {
		t.Errorf("got %+v, %v; want one flow in xdp", placements, err)
	}
	if err := svc.Close(); err != nil {
		t.Error(err)
	}
	cfg.Backend = "rdma"
	svc, err = plugin.Launch(t.Context(), plugin.Options{Path: program(t, "flowtally-plugin"), Config: cfg, StartTimeout: patience})
	if err == nil {
		svc.Close()
		t.Fatal("rdma counts without its library")
	}
	t.Log(err)
	if !strings.Contains(err.Error(), "libibverbs") {
		t.Errorf("%v: it does not name libibverbs", err)
	}
}
