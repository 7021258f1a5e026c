package rdma

import (
	"log/slog"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/trial"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv"
)

// TryFlows adds rules and counters without packets, in each mode that the instance uses, and removes them. The child process of a
// trial calls it. The trial is about crashes and hangs, so TryFlows ignores errors.
func TryFlows(lib *ibv.Library, r trial.Request) {
	h := &ibvHardware{lib: lib, steal: r.RDMA.Steal, log: slog.New(slog.DiscardHandler)}
	n, err := h.openUntried(portInfo{name: r.Device, port: r.Port, shared: r.Shared})
	if err != nil {
		return
	}
	defer n.Close()
	for _, d := range []flow.Direction{flow.Ingress, flow.Egress} {
		for _, a := range []flow.Action{flow.Count, flow.Drop} {
			mode, err := n.mode(d, a)
			if err != nil {
				continue
			}
			b, err := n.newBulk()
			if err != nil {
				continue
			}
			rule, err := n.addRule(rule{match: noPacket(), direction: d, mode: mode, drop: a == flow.Drop, level: numLevels - 1}, b, b.slots()-1)
			if err == nil {
				values := make([]backend.Pair, b.slots())
				_ = b.query(values)
				_ = rule.Close()
				_ = b.queryFinal(values)
			}
			_ = b.Close()
		}
	}
}
