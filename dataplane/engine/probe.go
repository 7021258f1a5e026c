package engine

import (
	"context"
	"net"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/probe"
)

// ProbeOptions says what to look at. The zero value looks at everything.
type ProbeOptions struct {
	Interfaces  []string // none: every one that is up
	Devices     []string // RDMA devices that are asked about by name, whatever their interfaces
	DevicesOnly bool     // ask about Devices alone, and no interface: what queue pairs need
	RDMA        dataplane.RDMAConfig
	Trial       TrialCommand // as Options.Trial
}

// Probe says what each backend can do here, in the network namespace of the calling
// thread. It attaches nothing and changes nothing.
func Probe(ctx context.Context, o ProbeOptions) []probe.Result {
	switch {
	case o.DevicesOnly:
		o.Interfaces = nil
	case len(o.Interfaces) == 0:
		if o.Interfaces = up(); len(o.Interfaces) == 0 {
			o.Interfaces = []string{"lo"} // the kernel's own answers come with any of them
		}
	}
	type question struct{ feature, object string }
	asked := make(map[question]bool)
	var out []probe.Result
	for _, name := range o.Interfaces {
		if ctx.Err() != nil {
			break
		}
		for _, r := range xdp.Probe(name) {
			// What does not depend on the interface comes with each of them.
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
