package links

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// TestWatch sees a link go down, up, take another name and go.
func TestWatch(t *testing.T) {
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
