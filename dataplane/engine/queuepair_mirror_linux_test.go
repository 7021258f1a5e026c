package engine

import (
	"errors"
	"fmt"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/shm/shmtest"
)

// TestWaitersAreWokenByCompletions, and by those in error, whatever counts.
func TestWaitersAreWokenByCompletions(t *testing.T) {
	eachPairSource(t, func(t *testing.T, s *softNIC, _ string) {
		cfg := s.pairConfig(t, local...)
		e := s.startPairs(t, cfg)
		r := shmtest.MustOpen(t, cfg.Mirror.Path)
		woken := make(chan error, 1)
		wait := func(name string, threshold uint64) {
			h := shmtest.MustLookup(t, r, name)
			go func() {
				v, err := r.Wait(t.Context(), h, threshold)
				if err == nil && v.Packets < threshold {
					err = fmt.Errorf("woken at %d, below %d", v.Packets, threshold)
				}
				woken <- err
			}()
		}
		wait("b-recv", 500)
		mustPost(t, e, "a", dataplane.Send, 499)
		wantTotals(t, cfg.Mirror.Path, map[string]backend.Pair{"b-recv": ended(499, 0)})
		select {
		case err := <-woken:
			t.Fatalf("woken one too early: %v", err)
		default:
		}
		mustPost(t, e, "a", dataplane.Send, 1)
		if err := <-woken; err != nil {
			t.Error(err)
		}
		wrong := stateOf(t, e, "a").Peer
		wrong.RKey ^= 0x5a5a
		if err := e.QueuePairs().Connect(t.Context(), "a", wrong); err != nil {
			t.Fatal(err)
		}
		wantTotals(t, cfg.Mirror.Path, map[string]backend.Pair{"a-rdma_write": {}})
		h := shmtest.MustLookup(t, r, "a-rdma_write")
		before, err := r.Wait(t.Context(), h, 0)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			v, err := r.WaitChange(t.Context(), h, before)
			if err == nil && v.Bytes == 0 {
				err = fmt.Errorf("woken without an error: %+v", v)
			}
			woken <- err
		}()
		if _, err := e.QueuePairs().Post(t.Context(), "a", dataplane.RDMAWrite, 1); err != nil && !errors.Is(err, dataplane.ErrNotConnected) {
			t.Fatal(err)
		}
		if err := <-woken; err != nil {
			t.Error(err)
		}
	})
}

// TestCompletionsAreCountedWhileTheMirrorGrows: flows fill it several times over while a device counts
// in its words; a reader that holds those reads on.
func TestCompletionsAreCountedWhileTheMirrorGrows(t *testing.T) {
	s := newShimmedNIC(t)
	cfg := s.pairConfig(t, local...)
	cfg.Backend = "sim"
	cfg.Mirror.Counters = 0
	e := s.startPairs(t, cfg)
	r := shmtest.MustOpen(t, cfg.Mirror.Path)
	d, err := r.Device(shmtest.MustLookup(t, r, "a-send"))
	if err != nil {
		t.Fatal(err)
	}
	for round := range uint64(3) {
		flows := make([]flow.Flow, 4000)
		for i := range flows {
			flows[i] = flow.Flow{Name: fmt.Sprintf("f%d-%d", round, i), Latency: i%4 == 0}
		}
		added := make(chan error, 1)
		go func() {
			_, err := e.AddFlows(t.Context(), flows...)
			added <- err
		}()
		mustPost(t, e, "a", dataplane.Send, 1000)
		if comp, errs, err := d.Load(); comp != 1000*(round+1) || errs != 0 || err != nil {
			t.Errorf("round %d: the words say %d and %d, %v", round, comp, errs, err)
		}
		if err := <-added; err != nil {
			t.Fatal(err)
		}
		want := ended(1000*(round+1), 0)
		wantTotals(t, cfg.Mirror.Path, map[string]backend.Pair{"a-send": want, "b-recv": want})
		wantWords(t, cfg.Mirror.Path, modeExternal, "a-send", want)
	}
	if st := r.Status(); st.Counters+st.Records <= 2*shm.SegmentLen {
		t.Errorf("the mirror has not grown: %+v", st)
	}
	if st := r.Status(); st.CountersUsed+st.RecordsUsed != 12008 {
		t.Errorf("%d counters and %d records are in use, want 12008 in all", st.CountersUsed, st.RecordsUsed)
	}
}
