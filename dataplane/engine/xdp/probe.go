package xdp

import (
	"cmp"

	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/xdp"
)

// Prober probes interfaces. One serves for many.
type Prober struct{ of xdp.Prober }

// Probe returns which features of the backend an interface and the kernel support. A result that does not depend
// on the interface is about the object "backend xdp". Probe attaches nothing.
func (p *Prober) Probe(ifname string) []probe.Result {
	out := p.of.Probe(ifname)
	for i := range out {
		out[i].Object = cmp.Or(out[i].Object, "backend xdp")
		out[i].Backend = "xdp"
	}
	return out
}
