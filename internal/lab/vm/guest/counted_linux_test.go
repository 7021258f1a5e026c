//go:build vm

package guest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/lab/demo"
	"github.com/flowtally/flowtally/plugin"
)

// TestCountedByXDPBesideRXE: the flows and the traffic of the demo on a netdev that
// has an RDMA device which cannot count. Each is counted by XDP, exactly, and each says
// why the device does not.
func TestCountedByXDPBesideRXE(t *testing.T) {
	path := program(t, "flowtally-plugin")
	report, err := demo.Run(t.Context(), demo.Options{
		For: 3 * time.Second, Mode: demo.Native, Rate: 5000,
		Launch: func(ctx context.Context, cfg dataplane.Config, env []string) (dataplane.Service, error) {
			// It goes with its netdev, which the demo removes.
			if err := netlink.RdmaLinkAdd("rxe0", "rxe", cfg.Interfaces[0].Name); err != nil {
				return nil, err
			}
			cfg.Backend = "auto"
			svc, err := plugin.Launch(ctx, plugin.Options{Path: path, Config: cfg, Env: env, StartTimeout: patience})
			if err == nil {
				checkRejected(t, svc, len(cfg.Flows))
			}
			return svc, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var packets uint64
	for _, c := range report.Flows {
		if !c.Exact() {
			t.Errorf("%+v", c)
		}
		packets += c.SentPackets
	}
	if len(report.Flows) < 12 || packets < 5000 {
		t.Errorf("%d packets over %d flows: the test looks at little", packets, len(report.Flows))
	}
	t.Logf("%d packets over %d flows", packets, len(report.Flows))
}

// checkRejected looks at where the flows are counted and why not elsewhere.
func checkRejected(t *testing.T, svc dataplane.Service, flows int) {
	t.Helper()
	placements, err := svc.Placements(t.Context())
	if err != nil || len(placements) != flows {
		t.Errorf("%d placements, %v; want %d", len(placements), err, flows)
		return
	}
	reasons := make(map[string]int)
	for _, p := range placements {
		if p.Source.Backend != "xdp" {
			t.Errorf("%s is counted by %+v", p.Flow.Name, p.Source)
		}
		for _, r := range p.Rejected {
			if r.Backend == "rdma" {
				reasons[r.Reason]++
			}
		}
	}
	rejected := 0
	for reason, n := range reasons {
		rejected += n
		t.Logf("%d flows: rdma: %s", n, reason)
		if !strings.Contains(reason, "rxe0") || !strings.Contains(reason, "not supported") {
			t.Errorf("%q does not say that rxe0 does not support it", reason)
		}
	}
	if rejected != flows {
		t.Errorf("%d of %d flows say why rdma does not count them", rejected, flows)
	}
}

func TestRDMAAloneCountsNothingAndSaysWhy(t *testing.T) {
	newPair(t, "v0")
	addRXE(t, "rxe0", "v0")
	cfg := dataplane.Config{
		Instance: "alone", Backend: "rdma", Interfaces: []dataplane.Interface{{Name: "v0"}},
		Flows: flows(t, "v0", "ipv4 udp dport 53"),
	}
	t.Cleanup(func() { demo.Sweep(cfg.Instance) })
	svc, err := plugin.Launch(t.Context(), plugin.Options{Path: program(t, "flowtally-plugin"), Config: cfg, StartTimeout: patience})
	if err == nil {
		svc.Close()
		t.Fatal("rxe0 counts")
	}
	t.Log(err)
	if s := err.Error(); !strings.Contains(s, "rxe0") || !strings.Contains(s, "not supported") {
		t.Errorf("it does not say that rxe0 does not support it: %v", err)
	}
}

func TestRemovalOfAnUnusedDeviceDoesNotWait(t *testing.T) {
	newPair(t, "v0")
	if err := netlink.RdmaLinkAdd("rxe0", "rxe", "v0"); err != nil {
		t.Fatal(err)
	}
	cfg := dataplane.Config{
		Instance: "beside", Interfaces: []dataplane.Interface{{Name: "v0"}}, Flows: flows(t, "v0", "ipv4 udp dport 53"),
	}
	t.Cleanup(func() { demo.Sweep(cfg.Instance) })
	svc, err := plugin.Launch(t.Context(), plugin.Options{Path: program(t, "flowtally-plugin"), Config: cfg, StartTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, svc)
	removed := make(chan error, 1)
	go func() { removed <- netlink.RdmaLinkDel("rxe0") }()
	select {
	case err := <-removed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience): // the kernel waits for every process that has it open
		t.Fatal("removing the device is still waiting")
	}
	placements, err := svc.Placements(t.Context())
	if err != nil || len(placements) != 1 || placements[0].Source.Backend != "xdp" {
		t.Errorf("got %+v, %v; want one flow in xdp", placements, err)
	}
}
