package xdp

import (
	"log/slog"
	"os"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/xdp"
)

func TestMain(m *testing.M) {
	_ = lab.Isolate(lab.ForTests) // without the privilege to do so, run in the present namespaces
	os.Exit(m.Run())
}

// A counter apart lacks the packets of the other interfaces, so no flow of the next process may take it over, not even one on
// exactly its interface. That flow only takes a counter that belonged to the interface all along. Afterwards no counter is left
// without a flow.
func TestNoFlowTakesACounterOfOneInterface(t *testing.T) {
	need.BPF(t)
	need.Netns(t)
	p, err := lab.NewWire(lab.WireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ifname := p.Near.Name
	whole := backend.Placed{Flow: flow.Flow{Name: "both"}}
	one := whole.On(ifname)
	other := one
	other.Name = "other"
	for name, c := range map[string]struct {
		left  []string // owners
		next  backend.Placed
		takes bool
	}{
		"the same name":                   {[]string{owner(whole.Flow), apartOwner(whole, ifname)}, one, false},
		"another name":                    {[]string{owner(whole.Flow), apartOwner(whole, ifname)}, other, false},
		"a flow of the interface":         {[]string{owner(one.Flow)}, one, true},
		"a renamed flow of the interface": {[]string{owner(one.Flow)}, other, true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := p.Near.NS.Do(func() error {
				o := Options{
					Interfaces: []dataplane.Interface{{Name: ifname}}, Flows: []flow.Flow{c.next.Flow}, Logger: slog.New(slog.DiscardHandler),
					Config: dataplane.XDPConfig{MaxFlows: 64, PinDir: "/sys/fs/bpf/" + lab.Unique("apart")},
				}
				rs, err := xdp.Open(xdp.Options{PinDir: o.Config.PinDir, MaxRules: o.Config.MaxFlows, Logger: o.Logger})
				if err != nil {
					return err
				}
				for _, owner := range c.left {
					if _, err := rs.AllocCounter(owner); err != nil {
						return err
					}
				}
				if err := rs.Close(); err != nil {
					return err
				}
				b, err := New(o)
				if err != nil {
					return err
				}
				defer b.Close(false)
				in, err := b.Install(t.Context(), []backend.Placed{c.next})
				if err != nil {
					return err
				}
				if in[0].Adopted != c.takes {
					t.Errorf("takes a counter of before: %v, want %v", in[0].Adopted, c.takes)
				}
				if err := b.RemoveStale(t.Context()); err != nil {
					return err
				}
				if left := b.rules.Counters(); len(left) != 1 {
					t.Errorf("counters %+v, want one", left)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		})
	}
}
