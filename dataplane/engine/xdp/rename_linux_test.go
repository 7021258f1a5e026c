package xdp

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// An interface of a pattern is renamed again before the watcher has handled the first event. Its packets pass uncounted
// until its last name is counted on: that name begins another epoch. An interface that comes with a name of the pattern,
// and is renamed within it, has missed nothing.
func TestTwoRenamesBeforeTheWatcherLooks(t *testing.T) {
	need.BPF(t)
	need.Netns(t)
	for name, c := range map[string]struct {
		first, last string
		missed      bool // packets
	}{
		"within the pattern": {"eth0", "eth7", true},
		"into the pattern":   {"other0", "eth7", false},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := lab.NewWire(lab.WireOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { w.Close() })
			rename := func(name string) {
				t.Helper()
				if err := w.Near.Rename(name); err != nil {
					t.Fatal(err)
				}
			}
			rename(c.first)
			beside, err := lab.NewPair(w.Near.NS, w.Far.NS, "eth1", lab.Unique("f"), lab.PairOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { beside.Close() })
			var b *Backend
			if err := w.Near.NS.Do(func() (err error) {
				b, err = New(Options{
					Interfaces: []dataplane.Interface{{Name: "eth*"}}, Config: dataplane.XDPConfig{MaxFlows: 64}, Logger: slog.New(slog.DiscardHandler),
				})
				return err
			}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { b.Close(false) })
			f := backend.Placed{Flow: flow.Flow{Name: "a"}}
			if _, err := b.Install(t.Context(), []backend.Placed{f}); err != nil {
				t.Fatal(err)
			}
			if err := b.RemoveStale(t.Context()); err != nil {
				t.Fatal(err)
			}
			counts := func(ifname string) bool {
				return slices.ContainsFunc(b.Source(f).Devices, func(d dataplane.Device) bool { return d.Name == ifname })
			}
			was := b.Epoch(f)
			b.mu.Lock() // the watcher waits
			rename("eth5")
			rename(c.last)
			b.mu.Unlock()
			lab.Eventually(t, "the count under the last name", func() bool { return counts(c.last) })
			if now := b.Epoch(f); (now > was) != c.missed {
				t.Errorf("epoch %#x, and %#x before the renames", now, was)
			}
		})
	}
}
