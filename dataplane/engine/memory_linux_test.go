package engine

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// A running instance keeps each flow once: neither it, nor a backend, nor the trials of devices, nor the queue
// pairs keep the slice of flows that the configuration had.
func TestTheConfigurationsFlowsAreFreed(t *testing.T) {
	b := newSoftBench(t)
	pairs := b.pairConfig(t, dataplane.Send)
	b.Config.QueuePairs, b.Config.RDMA = pairs.QueuePairs, pairs.RDMA
	b.Env.Set(t.Setenv)
	var flows weak.Pointer[flow.Flow]
	if err := b.Wire.Near.NS.Do(func() (err error) {
		cfg := b.Config
		for i := range 64 {
			cfg.Flows = append(cfg.Flows, flow.Flow{Name: fmt.Sprintf("f%d", i), Match: match(t, fmt.Sprintf("udp dport %d", 1000+i))})
		}
		flows = weak.Make(&cfg.Flows[0])
		b.e, err = New(context.Background(), cfg, b.opts)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	endWith(t, b.e)
	for deadline := time.Now().Add(20 * time.Second); flows.Value() != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("something keeps the flows of the configuration")
		}
		runtime.GC()
	}
	if placed, err := b.e.Placements(t.Context(), "f0"); err != nil || len(placed) != 1 || placed[0].Source.Backend != "rdma" {
		t.Errorf("flow f0: %+v, %v", placed, err)
	}
}

// A start keeps the rules of a dead process in memory until its flows have taken them over, and no compiled rules: these would
// take several times the memory of their flows.
func TestCompiledRulesAreNotKept(t *testing.T) {
	b := newBench(t, "native", flow.Flow{Name: "a", Match: match(t, "udp dport 1001")})
	b.cfg.XDP.KeepPins = true
	for _, left := range []int{0, 1} {
		x, err := xdp.New(xdp.Options{Interfaces: b.cfg.Interfaces, Config: b.cfg.XDP, Flows: b.cfg.Flows, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		f := backend.Placed{Flow: b.cfg.Flows[0]}
		if _, err := x.AddShadows(t.Context(), []backend.Placed{f}); err != nil || x.Inspect().Kept != 0 {
			t.Errorf("over %d rules: %d are kept: %v", left, x.Inspect().Kept, err)
		}
		if err := x.Close(true); err != nil {
			t.Fatal(err)
		}
		e := b.start(t)
		if n := e.backends[0].(*xdp.Backend).Inspect().Kept; n != 0 {
			t.Errorf("over %d rules: an instance that runs keeps %d", left, n)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
