package demo

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/shm"
)

// An instance that is there already is left alone, whatever happens.
func TestExistingInstanceIsLeftAlone(t *testing.T) {
	need.Netns(t)
	name := lab.Unique("demo-test-")
	path := mirrorPath(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("another's"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(path) })
	_, err := Run(t.Context(), Options{Instance: name, Launch: func(context.Context, dataplane.Config, []string) (dataplane.Service, error) {
		t.Error("an instance was launched")
		return nil, errors.New("no")
	}})
	if !errors.Is(err, dataplane.ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the other instance's mirror: %v", err)
	}
}

// A launch that fails leaves no interface behind, and its error is returned.
func TestFailedLaunchLeavesNoInterface(t *testing.T) {
	need.Netns(t)
	refused := errors.New("refused")
	_, err := Run(t.Context(), Options{Launch: func(_ context.Context, cfg dataplane.Config, _ []string) (dataplane.Service, error) {
		if len(cfg.Interfaces) != 2 || len(cfg.Flows) < 24 {
			t.Errorf("asked to count %d flows on %d interfaces", len(cfg.Flows), len(cfg.Interfaces))
		}
		return nil, refused
	}})
	if !errors.Is(err, refused) {
		t.Errorf("got %v, want the launch's own error", err)
	}
	for _, name := range []string{"ft-native", "ft-generic"} {
		if _, err := os.Stat("/sys/class/net/" + name); err == nil {
			t.Errorf("interface %s is still there", name)
		}
	}
}

// Whatever counts, the flows are the same, the one that drops included: only the interface differs.
func TestBackendsCountTheSameFlows(t *testing.T) {
	need.Netns(t)
	asked := func(backend string) (flows []flow.Flow) {
		refused := errors.New("refused")
		_, err := Run(t.Context(), Options{Backend: backend, Mode: Native, Launch: func(_ context.Context, cfg dataplane.Config, _ []string) (dataplane.Service, error) {
			flows = cfg.Flows
			return nil, refused
		}})
		if !errors.Is(err, refused) {
			t.Fatalf("got %v, want the launch's own error", err)
		}
		for i := range flows {
			_, flows[i].Name, _ = strings.Cut(flows[i].Name, "/")
			flows[i].Interface = ""
		}
		return flows
	}
	nic, xdp := asked("rdma"), asked("xdp")
	if diff := cmp.Diff(xdp, nic); diff != "" || len(nic) < 12 {
		t.Errorf("%d flows (-xdp +rdma):\n%s", len(nic), diff)
	}
	if !slices.ContainsFunc(nic, func(f flow.Flow) bool { return f.Action == flow.Drop }) {
		t.Error("no flow drops")
	}
}

// Sweep leaves nothing of an instance whose devices wrote into its mirror.
func TestSweepLeavesNothingOfAnInstance(t *testing.T) {
	need.Root(t) // the default directory
	name := lab.Unique("demo-sweep-")
	w, err := shm.Create(shm.Options{Path: mirrorPath(name), Counters: 64, History: -1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.DeviceSegment(4); err != nil {
		t.Error(err)
	}
	if err := errors.Join(w.Close(), Sweep(name)); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(mirrorPath(name)), name+"*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	for _, path := range left {
		os.Remove(path)
	}
}
