package engine

import (
	"context"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/inject"
)

// Counters that cannot be read for a while, longer than a device is trusted, cost nothing where there is
// nothing else to count with: the rules stay and count, and the total is exact when reading succeeds.
func TestALapseOfReadingCostsNothing(t *testing.T) {
	b := newSoftBench(t, webFlow(t))
	b.cfg.Backend = "rdma"
	// More failures in a row than a counter is given up after, over some 5 s.
	b.env.Fail = []ibvtest.Fault{{Verb: "mlx5dv_devx_obj_query", Errno: "EIO", From: 100, To: 100 + giveUp + 1}}
	b.run(t)
	made := b.calls(t, "__mlx5dv_create_flow")
	frames := make([][]byte, 64)
	for i := range frames {
		frames[i] = udpTo(1001, 60)
	}
	givenUp := false
	for b.calls(t, "mlx5dv_devx_obj_query") < 100+giveUp+2 {
		b.pass(t, flow.Ingress, frames)
		b.sent = backend.Add(b.sent, backend.Pair{Packets: 64, Bytes: 64 * 60})
		over := b.e.mover.stack.hardware
		givenUp = givenUp || over.Gone()["web"] != nil
	}
	if !givenUp {
		t.Error("the counter was never given up: the test shows nothing")
	}
	if got := b.total(t, "web"); got != b.sent {
		t.Errorf("counted %+v, want %+v", got, b.sent)
	}
	if n := b.calls(t, "__mlx5dv_create_flow"); n != made {
		t.Errorf("%d rules were made again", n-made)
	}
	b.e.ctl.Lock()
	defer b.e.ctl.Unlock()
	if c := b.e.flows["web"]; c.past.Discontinuities != 0 || c.gone != nil {
		t.Errorf("%d discontinuities, gone: %v", c.past.Discontinuities, c.gone)
	}
}

// A hardware counter that begins anew is one discontinuity: the number of packets that it had counted after its
// last reading is unknown. The packets up to that reading stay in the total.
func TestAResetOfACounterIsADiscontinuity(t *testing.T) {
	h := newFakeHost("v0")
	over := openFake(t, h, "v0")
	s := &stacked{cfg: dataplane.Config{
		Backend: "rdma", Interfaces: []dataplane.Interface{{Name: "v0"}},
		Mirror: dataplane.MirrorConfig{Path: t.TempDir() + "/t.mirror", Counters: 64, History: -1},
	}}
	e, err := New(inject.Backends(context.Background(), over), s.cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s.e = e
	if s.events, err = e.Events(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := e.AddFlows(t.Context(), udpFlow(t, "dns", "udp dport 53", 5)); err != nil {
		t.Fatal(err)
	}
	shows := func(want uint64) {
		t.Helper()
		eventually(t, "the total", func() bool {
			e.ctl.Lock()
			defer e.ctl.Unlock()
			v, err := e.writer.Last(e.flows["dns"].handle)
			return err == nil && v.Packets == want
		})
	}
	discontinuities := func() uint64 {
		e.ctl.Lock()
		defer e.ctl.Unlock()
		return e.flows["dns"].past.Discontinuities
	}
	h.nic(0).set(t, 53, backend.Pair{Packets: 100, Bytes: 6000})
	shows(100)
	if n := discontinuities(); n != 0 {
		t.Errorf("%d discontinuities before", n)
	}
	h.nic(0).set(t, 53, backend.Pair{Packets: 3, Bytes: 180})
	shows(103)
	eventually(t, "a discontinuity", func() bool { return discontinuities() == 1 })
	told := false
	for _, ev := range s.moves() {
		told = told || ev.Object == "dns" && ev.Uncounted.Unknown
	}
	if !told {
		t.Error("no event says that the total may lack something")
	}
	h.nic(0).set(t, 53, backend.Pair{Packets: 5, Bytes: 300})
	shows(105)
	e.watcher.refreshSources(t.Context())
	if n := discontinuities(); n != 1 {
		t.Errorf("%d discontinuities, want the one", n)
	}
}
