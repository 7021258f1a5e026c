package xdprows

import (
	"sync"
	"testing"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/lab/classbench"
)

// The program of rte_acl, where it can be compiled, decides each packet of a trace as the linear matcher does (it
// compares them itself), and has a figure.
func TestACLClassifiesAsALinearSearchDoes(t *testing.T) {
	if _, err := dpdkFlags(t.Context()); err != nil {
		t.Log(err) // make bench installs it
		return
	}
	cpus, err := bench.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range classbench.Families() {
		a := &acl{set: sync.OnceValue(func() input { return ofFamily(f, 300) })}
		defer a.open.Close()
		if err := a.prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		side, err := a.side(cpus[0])
		if err != nil {
			t.Fatal(err)
		}
		if ns, err := side(t.Context(), tracePackets); err != nil || ns <= 0 {
			t.Errorf("%s: %v ns, %v", f, ns, err)
		} else {
			t.Logf("%s: %.1f ns", f, ns)
		}
	}
}
