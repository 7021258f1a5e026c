package model

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab/memkernel"
)

// crowd draws legal flows with masks of their own. Their trees take long to build, and may not fit.
func crowd(n int) (list []flow.Flow) {
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range n {
		ip := &flow.IPv4{}
		for b := range 4 { // few bits: rules with wide masks are in many leaves
			ip.Src.Mask[b], ip.Dst.Mask[b] = byte(rng.Uint32()&rng.Uint32()&rng.Uint32()), byte(rng.Uint32()&rng.Uint32()&rng.Uint32())
			ip.Src.Addr[b], ip.Dst.Addr[b] = byte(rng.Uint32())&ip.Src.Mask[b], byte(rng.Uint32())&ip.Dst.Mask[b]
		}
		list = append(list, flow.Flow{
			Name: fmt.Sprintf("crowd%d", i), Action: flow.Count, Direction: flow.Ingress, Match: flow.Match{IPv4: ip},
		})
	}
	return list
}

// beforeCrowd plays a history up to the adding of many flows, with room for them, and then f.
func beforeCrowd(t *testing.T, f func(w *world)) {
	t.Helper()
	inWorld(t, func(w *world) {
		w.room = 4096
		w.play(t, "set a=1; start; send 1 v0 10; check")
		f(w)
	})
}

// inWorld calls f in a bubble, with a host that has begun no history.
func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	dir, err := os.MkdirTemp(memory, "model")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	now := time.Now().UnixNano()
	host := memkernel.NewHost(&pages)
	defer host.Close()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Duration(now-time.Now().UnixNano()) + time.Hour)
		w := newWorld(host, dir, t.Logf)
		defer w.end()
		f(w)
	})
}

// play does the steps of a history.
func (w *world) play(t *testing.T, text string) {
	t.Helper()
	steps, err := parseHistory(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		if err := w.do(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// A process is killed while it adds many flows. The next one has the flows of before, with every packet: it need not build
// the trees of the others, for which there may be no room.
func TestAKillWhileManyFlowsAreAddedLeavesThoseOfBefore(t *testing.T) {
	beforeCrowd(t, func(w *world) {
		ctx, cancel := context.WithCancel(context.Background())
		w.kill.only = "wait" // the first grace period of the call is ahead of the build
		w.kill.then = cancel // nobody needs the trees of a dead process
		killed, err := w.within(1, true, func() error {
			_, err := w.engine.AddFlows(ctx, crowd(4000)...)
			return err
		})
		if !killed {
			t.Fatalf("the process was not killed: %v", err)
		}
		w.uncertain = false // only flows were added
		w.play(t, "send 1 v0 5; start; check; send 1 v0 3; check")
	})
}

// A caller gives up while its many flows are built. None of them stays, and the caller does not wait for the build.
func TestACancelledCallForManyFlowsEndsAtOnce(t *testing.T) {
	beforeCrowd(t, func(w *world) {
		ctx, cancel := context.WithCancel(context.Background())
		w.setAtStep(func(what string) {
			if what == "wait" {
				cancel()
			}
		})
		_, err := w.engine.AddFlows(ctx, crowd(4000)...)
		w.setAtStep(nil)
		if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "has not replied") {
			t.Errorf("the call ends with %v", err)
		}
		w.play(t, "send 1 v0 5; check; set a=1 b=2; send 2 v0 1; check")
		if placed, err := w.engine.Placements(context.Background()); err != nil || len(placed) != 2 {
			t.Errorf("%d flows, %v", len(placed), err)
		}
	})
}
