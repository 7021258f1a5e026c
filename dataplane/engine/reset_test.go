package engine

import (
	"context"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/internal/inject"
)

// A hardware counter that is reset is one discontinuity: the number of packets between its last sample and the reset
// is unknown. The packets up to that sample stay in the total.
func TestAResetOfACounterIsADiscontinuity(t *testing.T) {
	over := newFakeHardware(true)
	s := &stacked{world: &world{over: over, under: newFakeSoftware()}, cfg: dataplane.Config{
		Backend: "rdma", Interfaces: []dataplane.Interface{{Name: "v0"}},
		Mirror: dataplane.MirrorConfig{Path: t.TempDir() + "/t.mirror", Counters: 64, History: -1},
		Poll:   dataplane.PollConfig{Period: time.Hour},
	}}
	e, err := New(inject.Backends(context.Background(), over), s.cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	e.stop()
	e.stopped.Wait()
	s.e = e
	if s.events, err = e.Events(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := e.AddFlows(t.Context(), udpFlow(t, "dns", "udp dport 53", 5)); err != nil {
		t.Fatal(err)
	}
	shows := func(packets, resets, discontinuities uint64) {
		t.Helper()
		over.pairs[over.ids["dns"]], over.resets = backend.Pair{Packets: packets, Bytes: packets * 60}, resets
		s.refresh(t)
		if got := s.total(t, "dns"); got.Packets != packets {
			t.Errorf("the total is %d packets, want %d", got.Packets, packets)
		}
		if n := e.flows["dns"].past.Discontinuities; n != discontinuities {
			t.Errorf("%d discontinuities at %d packets, want %d", n, packets, discontinuities)
		}
	}
	shows(100, 0, 0)
	s.moves()
	shows(103, 1, 1)
	told := false
	for _, ev := range s.moves() {
		told = told || ev.Object == "dns" && ev.Uncounted.Unknown
	}
	if !told {
		t.Error("no event says that the total may lack something")
	}
	shows(105, 1, 1)
}
