package engine

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// A running instance keeps each flow once: neither it, nor a backend, nor the trials of devices, nor the queue
// pairs keep the slice of flows that the configuration had.
func TestTheConfigurationsFlowsAreFreed(t *testing.T) {
	b := newSoftBench(t)
	pairs := b.pairConfig(t, dataplane.Send)
	b.cfg.QueuePairs, b.cfg.RDMA = pairs.QueuePairs, pairs.RDMA
	b.env.Set(t.Setenv)
	var flows weak.Pointer[flow.Flow]
	if err := b.wire.Near.NS.Do(func() (err error) {
		cfg := b.cfg
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
