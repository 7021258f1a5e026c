package xdp

import (
	"cmp"

	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/xdp"
)

// Prober probes interfaces. Use one for many interfaces: it asks the kernel only once about itself.
type Prober struct{ of xdp.Prober }

// Probe returns which features of the backend an interface and the kernel support, without attaching anything. The object of a
// result is "backend xdp" if the interface does not matter.
func (p *Prober) Probe(ifname string) []probe.Result {
	out := p.of.Probe(ifname)
	for i := range out {
		out[i].Object = cmp.Or(out[i].Object, "backend xdp")
		out[i].Backend = "xdp"
	}
	return out
}
