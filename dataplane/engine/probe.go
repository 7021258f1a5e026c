package engine

import (
	"context"
	"net"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/probe"
)

// ProbeOptions selects the objects of a Probe. The zero value selects everything.
type ProbeOptions struct {
	Interfaces  []string // empty: all interfaces that are up
	Devices     []string // RDMA devices to probe, in addition to the devices of Interfaces
	DevicesOnly bool     // probe Devices alone, and no interface, as queue pairs need
	RDMA        dataplane.RDMAConfig
	Period      time.Duration // as dataplane.PollConfig.Period: how often the counters of devices would be read
	Trial       TrialCommand  // as Options.Trial
}

// Probe returns which features each backend supports on this host, in the network namespace of the calling
// thread. It attaches no program and changes nothing.
func Probe(ctx context.Context, o ProbeOptions) []probe.Result {
	switch {
	case o.DevicesOnly:
		o.Interfaces = nil
	case len(o.Interfaces) == 0:
		if o.Interfaces = up(); len(o.Interfaces) == 0 {
			o.Interfaces = []string{"lo"} // the results about the kernel come with any of them
		}
	}
	type question struct{ feature, object string }
	asked := make(map[question]bool)
	var out []probe.Result
	var prober xdp.Prober
	for _, name := range o.Interfaces {
		if ctx.Err() != nil {
			break
		}
		for _, r := range prober.Probe(name) {
			// Results that do not depend on the interface come with each of them.
			if q := (question{r.Feature, r.Object}); !asked[q] {
				asked[q] = true
				out = append(out, r)
			}
		}
	}
	for _, r := range probeRDMA(ctx, o) {
		r.Backend = "rdma"
		out = append(out, r)
	}
	return append(out, probe.Result{
		Feature: "simulated counting", Object: "backend sim", Backend: "sim", Answer: probe.Yes, Reason: "needs nothing",
	})
}

// up lists the interfaces that are up, other than loopback.
func up() []string {
	all, err := net.Interfaces()
	if err != nil {
		return nil
	}
	var names []string
	for _, i := range all {
		if i.Flags&net.FlagUp != 0 && i.Flags&net.FlagLoopback == 0 {
			names = append(names, i.Name)
		}
	}
	return names
}
