package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

// TestRemoteOperationsNeedALongCounter: no queue here bounds the operations of the peer, so that a counter which goes on at 0
// soon could do so many times between two reads. It is refused for them, where nothing else counts them.
func TestRemoteOperationsNeedALongCounter(t *testing.T) {
	s := newShimmedNIC(t)
	s.Env.CompCntrMax = []string{"699"}
	cfg := s.pairConfig(t)
	cfg.QueuePairs[0].SendDepth = 2048
	cfg.QueuePairs[1].Counters = []dataplane.CompletionCounter{{Name: "b-remote", Operations: []dataplane.Operation{dataplane.RemoteRDMAWrite}}}
	e, err := s.newPairs(t, cfg)
	if err == nil {
		defer e.Close()
		mustPost(t, e, "a", dataplane.RDMAWrite, 20000)
		wantTotals(t, cfg.Mirror.Path, map[string]backend.Pair{"b-remote": ended(20000, 0)})
		t.Fatal("it starts")
	}
	if !errors.Is(err, dataplane.ErrUnplaced) || !strings.Contains(err.Error(), "go on at 0 past 699") {
		t.Errorf("%v, want the reason", err)
	}
}
