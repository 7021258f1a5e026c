package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/shm"
)

// TestSetFlowsAmongOtherCallsNeverLowersATotal renames and changes flows, with calls that are cancelled at any time,
// while other goroutines add and remove flows and read by name. A flow that stays counts every packet. A reader of a
// name never finds that a total falls, and never the total of another flow.
func TestSetFlowsAmongOtherCallsNeverLowersATotal(t *testing.T) {
	t.Parallel()
	stay := flow.Flow{Name: "stay", Match: match(t, "udp dport 1001"), Priority: 1}
	b := newBench(t, "native", stay, flow.Flow{Name: "x0", Match: match(t, "udp dport 1002"), Priority: 1})
	e, r := b.start(t), seed.Rand(t)
	snd, err := b.wire.Far.NewSender([]lab.Stream{{Frames: [][]byte{udpTo(1001, 60)}}, {Frames: [][]byte{udpTo(1002, 100)}}}, lab.SenderOptions{Rate: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	defer snd.Close()
	in, err := shm.OpenPath(b.cfg.Mirror.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := snd.Run(ctx, 0); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"stay", "x0", "x1"} {
		size := map[string]uint64{"stay": 60}[name]
		if size == 0 {
			size = 100
		}
		wg.Go(func() {
			var last shm.Value
			c, err := in.Counter(name)
			for errors.Is(err, shm.ErrNotFound) && ctx.Err() == nil {
				c, err = in.Counter(name)
			}
			if err != nil {
				return
			}
			for ctx.Err() == nil {
				v, err := c.Load()
				switch {
				case err != nil && !errors.Is(err, shm.ErrNotFound) && !errors.Is(err, shm.ErrBusy):
					t.Errorf("%s: %v", name, err)
					return
				case err != nil || v.SampledAt == 0:
				case v.Packets < last.Packets || v.Bytes != v.Packets*size:
					t.Errorf("%s: %+v after %+v", name, v, last)
					return
				default:
					last = v
				}
			}
		})
	}
	done := make(chan struct{})
	var others sync.WaitGroup
	for g := range 2 {
		others.Go(func() {
			name := fmt.Sprint("g", g)
			f := flow.Flow{Name: name, Match: match(t, fmt.Sprintf("udp dport %d", 3000+g))}
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := e.AddFlows(t.Context(), f); err != nil && !errors.Is(err, dataplane.ErrExists) {
					t.Error(err)
				}
				if err := e.RemoveFlows(t.Context(), name); err != nil && !errors.Is(err, dataplane.ErrNotFound) {
					t.Error(err)
				}
			}
		})
	}
	at, made, cancelled := 0, 0, 0
	patience := 4 * time.Millisecond // of a call; it follows the machine, so that some calls are cancelled and others are not
	for range 600 {
		from, to := fmt.Sprint("x", at), fmt.Sprint("x", 1-at)
		f := flow.Flow{Name: to, Match: match(t, "udp dport 1002"), Priority: 1, Action: flow.Action(r.IntN(2)), Latency: r.IntN(2) == 0,
			Labels: map[string]string{"n": fmt.Sprint(r.IntN(3))}}
		call, stop := context.WithCancel(t.Context())
		timer := time.AfterFunc(time.Duration(r.Int64N(int64(patience))), stop)
		_, err := e.SetFlows(call, []flow.Flow{stay, f}, dataplane.SetOptions{KeepOthers: r.IntN(2) == 0, Renames: map[string]string{from: to}})
		timer.Stop()
		stop()
		switch {
		case err == nil:
			at = 1 - at
			made++
			patience = max(patience*15/16, 1)
		case errors.Is(err, context.Canceled):
			cancelled++
			patience *= 2
		default:
			t.Fatal(err)
		}
		placed, err := e.Placements(t.Context(), "x0", "x1")
		if err != nil || len(placed) != 1 || placed[0].Flow.Name != fmt.Sprint("x", at) {
			t.Fatalf("placements %+v, %v, want x%d", placed, err, at)
		}
	}
	close(done)
	others.Wait()
	enough()
	wg.Wait()
	if err := snd.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	rd := reader(t, b.cfg)
	await(t, rd, "stay", backend.Pair(snd.Sent()[0]))
	await(t, rd, fmt.Sprint("x", at), backend.Pair(snd.Sent()[1]))
	t.Logf("%d calls made, %d cancelled; sent %v", made, cancelled, snd.Sent())
	if made < 10 || cancelled < 10 {
		t.Error("that shows nothing")
	}
}

// TestASetThatDoesNotFitLeavesTheTotals asks for sets that the mirror, the tables or the masks have no room for, under
// a set that is counted: the set and its totals are as before.
func TestASetThatDoesNotFitLeavesTheTotals(t *testing.T) {
	wide := flow.Flow{Name: "a", Match: match(t, "udp dport 1001"), Labels: map[string]string{"n": "1"}}
	b := newBench(t, "native", wide, flow.Flow{Name: "b", Match: match(t, "udp dport 1002"), Action: flow.Drop})
	b.cfg.XDP.MaxFlows, b.cfg.Mirror.LatencyCounters = 40, 2
	e := b.start(t)
	var many, latency []flow.Flow
	for i := range 60 {
		f := flow.Flow{Name: fmt.Sprint("m", i), Match: match(t, fmt.Sprintf("udp dport %d", 4000+i))}
		many = append(many, f)
		if f.Latency = true; i < 10 {
			latency = append(latency, f)
		}
	}
	drop, renamed := wide.Clone(), wide.Clone()
	drop.Action, drop.Labels = flow.Drop, nil
	renamed.Name = "z"
	var want backend.Pair
	for _, tt := range []struct {
		name  string
		flows []flow.Flow
		opts  dataplane.SetOptions
		is    error
	}{
		{"rules", append(many, drop), dataplane.SetOptions{}, dataplane.ErrFull},
		{"rules, with a rename", append(many, renamed), dataplane.SetOptions{KeepOthers: true, Renames: map[string]string{"a": "z"}}, dataplane.ErrFull},
		{"masks", append(shapes(t, 63), drop, flow.Flow{Name: "q", Match: match(t, "tcp")}), dataplane.SetOptions{}, dataplane.ErrFull},
		{"added flows beside removed flows", many[:39], dataplane.SetOptions{}, dataplane.ErrFull},
		{"latency counters", append(latency, drop), dataplane.SetOptions{}, dataplane.ErrFull},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := e.SetFlows(t.Context(), tt.flows, tt.opts)
			if err == nil || !errors.Is(err, tt.is) {
				t.Fatalf("error %v", err)
			}
			t.Log(strings.SplitN(err.Error(), "\n", 2)[0])
			if d := set(t, e, []flow.Flow{wide, {Name: "b", Match: match(t, "udp dport 1002"), Action: flow.Drop}}, dataplane.SetOptions{DryRun: true}); !d.Empty() {
				t.Fatalf("the set has changed:\n%s", d)
			}
			sent := b.send(t, 100, lab.Stream{Frames: [][]byte{udpTo(1001, 60)}})
			want = backend.Add(want, backend.Pair(sent[0]))
			await(t, reader(t, b.cfg), "a", want)
			if n := len(e.writer.Entries()); n != 2 {
				t.Errorf("%d entries", n)
			}
		})
	}
}
