package links

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
)

func TestWatchReportsDownRenameUpAndRemoval(t *testing.T) {
	need.Netns(t)
	w, err := lab.NewWire(lab.WireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var events <-chan Event
	if err := w.Near.NS.Do(func() (err error) { events, err = Watch(ctx); return err }); err != nil {
		t.Fatal(err)
	}
	next := func(kind Kind) Event {
		t.Helper()
		for e := range events {
			if e.Index == w.Near.Index && e.Kind == kind {
				return e
			}
		}
		t.Fatalf("no event %q", kind)
		return Event{}
	}
	next(Added)
	next(Up)
	name := lab.Unique("ft")
	for _, step := range []struct {
		args string
		kind Kind
	}{{"set dev " + w.Near.Name + " down", Down}, {"set dev " + w.Near.Name + " name " + name, Renamed},
		{"set dev " + name + " up", Up}, {"del dev " + name, Removed}} {
		if err := w.Near.NS.Do(func() error {
			out, err := exec.Command("ip", append([]string{"link"}, strings.Fields(step.args)...)...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("ip link %s: %w: %s", step.args, err, out)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		e := next(step.kind)
		if step.kind == Renamed && (e.Name != name || e.OldName != w.Near.Name) {
			t.Errorf("renamed: %+v", e)
		}
	}
	cancel()
	for range events {
	}
}

// The bridge itself sends an RTM_DELLINK when a port leaves. List must show the port under the bridge, too.
func TestBridgePortIsRestackedNotRemoved(t *testing.T) {
	need.Netns(t)
	w, err := lab.NewWire(lab.WireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ip := func(args string) {
		t.Helper()
		if err := w.Near.NS.Do(func() error {
			out, err := exec.Command("ip", append([]string{"link"}, strings.Fields(args)...)...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("ip link %s: %w: %s", args, err, out)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var events <-chan Event
	if err := w.Near.NS.Do(func() (err error) { events, err = Watch(ctx); return err }); err != nil {
		t.Fatal(err)
	}
	bridge := lab.Unique("br")
	ip("add " + bridge + " type bridge")
	ip("set dev " + w.Near.Name + " master " + bridge)
	ip("set dev " + w.Near.Name + " nomaster")
	ip("set dev " + w.Near.Name + " master " + bridge)

	var masters []bool
	for e := range events {
		if e.Index != w.Near.Index {
			continue
		}
		if e.Kind == Removed {
			t.Fatalf("event %+v, and the link is there", e)
		}
		if e.Kind == Restacked {
			masters = append(masters, e.Link.Master != 0)
		}
		if len(masters) == 3 {
			break
		}
	}
	if want := []bool{true, false, true}; !slices.Equal(masters, want) {
		t.Errorf("the port had a master: %v, want %v", masters, want)
	}

	var all map[int]Link
	if err := w.Near.NS.Do(func() (err error) { all, err = List(); return err }); err != nil {
		t.Fatal(err)
	}
	got := all[w.Near.Index]
	if got.Name != w.Near.Name || got.Kind != "veth" || all[got.Master].Name != bridge || all[got.Master].Kind != "bridge" {
		t.Errorf("listed: %+v, its master %+v", got, all[got.Master])
	}
}
