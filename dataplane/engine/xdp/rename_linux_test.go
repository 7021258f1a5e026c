package xdp

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// An interface is renamed twice before the watcher handles the first event. If we counted on it before, its packets pass
// uncounted until we count on its last name: that is an outage, even if the events are lost. If its first name was not in the
// pattern, nothing is missed.
func TestTwoRenamesAreAnOutageOnlyIfPacketsWereMissed(t *testing.T) {
	need.BPF(t)
	need.Netns(t)
	for name, c := range map[string]struct {
		first, last string
		lost        bool // the events
		missed      bool // packets
	}{
		"within the pattern":                      {"eth0", "eth7", false, true},
		"into the pattern":                        {"other0", "eth7", false, false},
		"within the pattern, and events are lost": {"eth0", "eth7", true, true},
		"into the pattern, and events are lost":   {"other0", "eth7", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			b, w, f := onWire(t, c.first)
			rename := func(name string) {
				t.Helper()
				if err := w.Near.Rename(name); err != nil {
					t.Fatal(err)
				}
			}
			counts := func(ifname string) bool {
				return slices.ContainsFunc(b.Source(f).Devices, func(d dataplane.Device) bool { return d.Name == ifname })
			}
			was := b.Now()
			if c.lost {
				b.hooks.stop()
				b.hooks.stopped.Wait()
			}
			b.mu.Lock() // the watcher waits
			rename("eth5")
			rename(c.last)
			b.mu.Unlock()
			if c.lost {
				b.CheckAll()
			}
			lab.Eventually(t, "the count under the last name", func() bool { return counts(c.last) })
			if last, open := b.Outage(f); open || last.After(was) != c.missed {
				t.Errorf("an outage ended at %d, and the renames came after %d; an outage is under way: %t", last, was, open)
			}
		})
	}
}

// Two interfaces exchange their names before the watcher handles an event. For a moment each of them is without a program.
func TestExchangedNamesAreAnOutageAndBothInterfacesCountAgain(t *testing.T) {
	need.BPF(t)
	need.Netns(t)
	b, w, f := onWire(t, "eth0")
	was := b.Now()
	b.mu.Lock() // the watcher waits
	err := w.Near.NS.Do(func() error {
		for _, to := range [][2]string{{"eth0", "swap"}, {"eth1", "eth0"}, {"swap", "eth1"}} {
			l, err := netlink.LinkByName(to[0])
			if err != nil {
				return err
			}
			if err := netlink.LinkSetName(l, to[1]); err != nil {
				return err
			}
		}
		return nil
	})
	b.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	lab.Eventually(t, "the outage and the counts under the new names", func() bool {
		last, open := b.Outage(f)
		_, complete := b.CompleteSince(f)
		return complete && !open && last.After(was)
	})
}

// An interface leaves the pattern, and the event is lost. Its packets do not matter from then on, so when it comes back, nothing
// was missed.
func TestALinkThatComesBackAfterALostEventHasMissedNothing(t *testing.T) {
	need.BPF(t)
	need.Netns(t)
	b, w, f := onWire(t, "eth0")
	b.hooks.stop()
	b.hooks.stopped.Wait()
	rename := func(name string) {
		t.Helper()
		if err := w.Near.Rename(name); err != nil {
			t.Fatal(err)
		}
	}
	was := b.Now()
	rename("other0")
	b.mu.Lock()
	b.hooks.leaves("eth0") // as the check every 2 s would
	b.mu.Unlock()
	b.CheckAll()
	rename("eth7")
	b.CheckAll()
	if !slices.ContainsFunc(b.Source(f).Devices, func(d dataplane.Device) bool { return d.Name == "eth7" }) {
		t.Fatalf("counted by %v", b.Source(f))
	}
	if last, open := b.Outage(f); open || last.After(was) {
		t.Errorf("an outage ended at %d, and the renames came after %d; an outage is under way: %t", last, was, open)
	}
}

// A lost hook is an outage. But if its interface is gone, no packets pass there, so it is none, even before the watcher knows
// about it.
func TestAHookOfAGoneInterfaceIsNoOutage(t *testing.T) {
	need.BPF(t)
	need.Netns(t)
	for _, goes := range []bool{false, true} {
		b, w, f := onWire(t, "eth0")
		b.hooks.stop()
		b.hooks.stopped.Wait()
		if _, open := b.Outage(f); open {
			t.Error("an outage with every hook held")
		}
		if err := w.Near.NS.Do(func() error {
			if !goes {
				return detach("eth1")
			}
			return netlink.LinkDel(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "eth1"}})
		}); err != nil {
			t.Fatal(err)
		}
		b.mu.Lock()
		b.hooks.refresh() // as control calls do
		b.mu.Unlock()
		_, open := b.Outage(f)
		if _, complete := b.CompleteSince(f); complete || open == goes {
			t.Errorf("interface gone %v: an outage %v, the shadow complete %v", goes, open, complete)
		}
	}
}

// onWire counts a flow on eth*. There are eth1 and the end of a wire, whose name is first.
func onWire(t *testing.T, first string) (*Backend, *lab.Wire, backend.Placed) {
	t.Helper()
	w, err := lab.NewWire(lab.WireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	if err := w.Near.Rename(first); err != nil {
		t.Fatal(err)
	}
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
	return b, w, f
}
