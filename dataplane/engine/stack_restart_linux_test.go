package engine

import (
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// The pins keep the counts of the shadows: with audit a total goes on over the time in
// which no process runs, exactly; without, from its last value, which says so. A degraded start that refuses another flow
// changes neither.
func TestATotalGoesOnOverARestartWithHardware(t *testing.T) {
	for _, c := range []struct {
		name            string
		audit, refused  bool
		between         uint64 // of 512 packets that pass while no process runs, how many the total has
		discontinuities uint64
	}{{"audit", true, false, 512, 0}, {"no audit", false, false, 0, 1}, {"audit, and a refused flow", true, true, 512, 0}} {
		t.Run(c.name, func(t *testing.T) {
			b := newSoftBench(t, webFlow(t))
			b.Config.RDMA.Audit, b.Config.XDP.KeepPins = c.audit, true
			if c.refused {
				b.Config.Start = dataplane.StartDegraded
				b.Config.Flows = append(b.Config.Flows, flow.Flow{Name: "ttl", Match: match(t, "ipv4 ttl 64 udp dport 9"), Backend: flow.RDMA})
			}
			frames := make([][]byte, 512)
			for i := range frames {
				frames[i] = udpTo(1001, 60)
			}
			want := uint64(0)
			for round := range uint64(3) {
				if round == 2 {
					b.Config.XDP.KeepPins = false
				}
				b.run(t)
				b.pass(t, flow.Ingress, frames)
				want += 512
				got := b.total(t, "web")
				b.e.ctl.Lock()
				f := b.e.flows["web"]
				disc, backend, refused := f.past.Discontinuities, f.source.Backend, len(b.e.refused.flows) == 1
				b.e.ctl.Unlock()
				if got.Packets != want || got.Bytes != 60*want || disc != round*c.discontinuities || backend != "rdma" || refused != c.refused {
					t.Errorf("run %d: %+v by %s, %d discontinuities; want %d packets by rdma, %d", round, got, backend, disc, want, round*c.discontinuities)
				}
				if err := b.e.Close(); err != nil {
					t.Fatal(err)
				}
				b.pass(t, flow.Ingress, frames) // no process polls
				want += c.between
			}
		})
	}
}
