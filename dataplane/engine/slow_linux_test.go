package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/ibv/ibvtest"
)

// Firmware that takes longer over ibv_create_flow than the caller of AddFlows has: the caller gets its
// context's error, the flow is gone when the command has ended, and can be added again.
func TestAddingEndsWithItsContextOverSlowFirmware(t *testing.T) {
	b := newSoftBench(t)
	b.Config.Backend = "rdma"
	b.Env.Without = []string{"devx"}
	b.Env.Delay = []ibvtest.Delay{{Verb: "EX_CREATE_FLOW", Time: 300 * time.Millisecond}}
	b.run(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := b.e.AddFlows(ctx, webFlow(t)); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `"web"`) {
		t.Errorf("error %v, want the context's, of flow web", err)
	}
	if _, err := b.e.Conditions(t.Context()); err != nil {
		t.Error(err)
	}
	placed, err := b.e.Placements(t.Context())
	if err != nil || len(placed) != 0 {
		t.Errorf("placed %+v, err %v", placed, err)
	}
	out, err := b.e.AddFlows(t.Context(), webFlow(t))
	if err != nil || out[0].Source.Backend != "rdma" {
		t.Errorf("added %+v, err %v", out, err)
	}
}
