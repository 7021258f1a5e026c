package demo

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
)

// instance is one instance that a demo runs.
type instance struct {
	cfg dataplane.Config
	env []string // of its process
}

// instances are those that count the links: one for XDP, or one for the NIC and one that
// counts the same traffic by XDP beside it.
func instances(o Options, links []*link) []instance {
	by := func(backend flow.Backend, name string) instance {
		in := instance{cfg: dataplane.Config{Instance: name, Backend: backend}}
		for _, l := range links {
			in.cfg.Interfaces = append(in.cfg.Interfaces, dataplane.Interface{Name: l.near.Name, Mode: dataplane.Mode(l.mode)})
			in.cfg.Flows = append(in.cfg.Flows, l.flows...)
		}
		return in
	}
	if o.Backend != "rdma" {
		return []instance{by("xdp", o.Instance)}
	}
	nic, beside := by("rdma", o.Instance), by("xdp", lab.Unique("demo-"))
	// As ibvtest.Env.Environ: the programs do not import that package (internal/rules).
	nic.env = append(slices.Clone(o.Env), "FLOWTALLY_IBVTEST_DEVICES="+o.Device+"="+links[0].near.Name, "FLOWTALLY_PLUGIN_PATHS="+os.TempDir())
	if o.Verbs {
		nic.env = append(nic.env, "FLOWTALLY_IBVTEST_WITHOUT=devx")
	}
	for i := range beside.cfg.Flows {
		// XDP sees a packet before the software NIC does, and a real NIC before XDP:
		// a packet that XDP dropped here would be lost to both.
		beside.cfg.Flows[i].Action = flow.Count
	}
	return []instance{nic, beside}
}

// launch starts an instance and opens its mirror.
func (r *run) launch(ctx context.Context, in instance, cleanup *cleaner) error {
	name := in.cfg.Instance
	if err := unused(name); err != nil {
		return err
	}
	r.o.Logger.Info("starting the plugin", "instance", name, "backend", in.cfg.Backend,
		"interfaces", len(in.cfg.Interfaces), "flows", len(in.cfg.Flows))
	cleanup.add(func() error { return Sweep(name) }) // also after a launch that failed half way
	svc, err := r.o.Launch(ctx, in.cfg, in.env)
	if err != nil {
		return err
	}
	cleanup.add(svc.Close)
	if err := checkPlacement(ctx, svc, in.cfg.Backend, r.o.Device, r.links); err != nil {
		return err
	}
	info, err := svc.Info(ctx)
	if err != nil {
		return fmt.Errorf("asking the instance for its mirror: %w", err)
	}
	m, err := openMirror(info.Mirror, in.cfg.Flows)
	if err != nil {
		return err
	}
	cleanup.add(m.close)
	r.mirrors = append(r.mirrors, m)
	return nil
}

// checkPlacement returns an error unless flows are counted where the options ask.
func checkPlacement(ctx context.Context, svc dataplane.Service, backend flow.Backend, device string, links []*link) error {
	placements, err := svc.Placements(ctx)
	if err != nil {
		return fmt.Errorf("asking the instance where its flows are counted: %w", err)
	}
	for _, l := range links {
		for _, f := range l.flows {
			i := slices.IndexFunc(placements, func(p dataplane.Placement) bool { return p.Flow.Name == f.Name })
			if i < 0 {
				return fmt.Errorf("flow %s: the instance does not have it", f.Name)
			}
			src := placements[i].Source
			switch {
			case src.Backend != backend:
				return fmt.Errorf("flow %s: counted by %q, not by %s: %v", f.Name, src.Backend, backend, placements[i].Rejected)
			case backend == "xdp" && f.Direction == flow.Ingress && src.Modes() != string(l.mode):
				return fmt.Errorf("flow %s: counted by xdp in mode %q, not in mode %s", f.Name, src.Modes(), l.mode)
			case backend == "rdma" && src.DeviceNames() != device:
				return fmt.Errorf("flow %s: counted on %q, not on %s", f.Name, src.DeviceNames(), device)
			}
		}
	}
	return nil
}
