package xdp

import (
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/xdp"
)

// shadows opens a backend on one interface with the shadows of flows.
func shadows(t *testing.T, ns *lab.Netns, ifname string, flows ...backend.Placed) *Backend {
	t.Helper()
	var b *Backend
	if err := ns.Do(func() (err error) {
		b, err = New(Options{
			Interfaces: []dataplane.Interface{{Name: ifname}},
			Config:     dataplane.XDPConfig{MaxFlows: 64},
			Logger:     slog.New(slog.DiscardHandler),
		})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close(false) })
	if _, err := b.AddShadows(t.Context(), flows); err != nil {
		t.Fatal(err)
	}
	if err := b.RemoveStale(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

// SetActive turns on the shadows of all of its flows or of none. When one of them can match no frame of the device, the
// shadows of the others must not go on dropping packets.
func TestRefusedSetActiveLeavesNoShadowDropping(t *testing.T) {
	need.BPF(t)
	need.Netns(t)
	w, err := lab.NewWire(lab.WireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	tun, err := lab.NewTun(w.Near.NS, lab.Unique("tun"), lab.TunOptions{})
	if err != nil {
		need.Missing(t, "tun", err.Error())
	}
	defer tun.Close()

	drops := backend.Placed{Flow: flow.MustParse("drops", "udp")}
	drops.Action = flow.Drop
	tagged := backend.Placed{Flow: flow.MustParse("tagged", "vlan"), Order: 1}
	flows := []backend.Placed{drops, tagged}
	b := shadows(t, w.Near.NS, tun.Name, flows...)
	if err := b.SetActive(t.Context(), flows, true); !errors.Is(err, dataplane.ErrInvalid) {
		t.Fatalf("activating a flow of tagged frames on a device without Ethernet: %v, want ErrInvalid", err)
	}
	if slices.ContainsFunc(b.rules.Rules(), func(r xdp.Rule) bool { return r.Drop }) {
		t.Errorf("rules %+v, want none that drops", b.rules.Rules())
	}
}

// A flow that counts apart on an interface needs its hook there. Changing what the flow counts ends that need.
func TestAlteringAFlowEndsItsNeedOfTheInterfaceApart(t *testing.T) {
	need.BPF(t)
	need.Netns(t)
	w, err := lab.NewWire(lab.WireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()

	was := backend.Placed{Flow: flow.MustParse("a", "udp")}
	now := backend.Placed{Flow: flow.MustParse("a", "tcp")}
	for name, keep := range map[string]bool{"kept": true, "taken back": false} {
		t.Run(name, func(t *testing.T) {
			b := shadows(t, w.Near.NS, w.Near.Name, was)
			if _, err := b.CountApart(t.Context(), []backend.Placed{was}, w.Near.Name, true); err != nil {
				t.Fatal(err)
			}
			_, end, err := b.Alter(t.Context(), backend.Change{Was: []backend.Placed{was}, Now: []backend.Placed{now}})
			if err != nil {
				t.Fatal(err)
			}
			if err := end(keep); err != nil {
				t.Fatal(err)
			}
			left := now
			if !keep {
				left = was
			}
			if err := b.Remove(t.Context(), []backend.Placed{left}); err != nil {
				t.Fatal(err)
			}
			if n := b.Inspect().Demand; n != 0 {
				t.Errorf("%d needs of hooks without a flow", n)
			}
			if n := len(b.rules.Attachments()); n != 0 {
				t.Errorf("%d programs are attached without a flow", n)
			}
		})
	}
}
