package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/rdma"
	"github.com/flowtally/flowtally/dataplane/engine/sim"
	"github.com/flowtally/flowtally/dataplane/engine/trial"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/hosted"
)

// candidates returns the backends that a word of the configuration allows, best first.
func candidates(word flow.Backend) []string {
	switch word {
	case "", "auto":
		return []string{"rdma", "xdp"}
	}
	return []string{string(word)}
}

// openBackends opens the backends that the configuration and its flows name, in the order in which flows are offered to
// them. A backend that only "auto" asks for may be missing, as long as another one is open; absent says why it is
// missing. A hardware backend without a device is among open, too. opts has a logger.
func openBackends(ctx context.Context, cfg dataplane.Config, host hosted.Host, opts Options, g *trial.Guard) (open []backend.Backend, absent map[string]error, err error) {
	defer func() {
		if err != nil {
			for _, b := range open {
				err = errors.Join(err, b.Close(true))
			}
			open = nil
		}
	}()
	asked, must := make(map[string]bool), make(map[string]bool)
	words := []flow.Backend{cfg.Backend}
	for _, f := range cfg.Flows {
		if f.Backend != "" {
			words = append(words, f.Backend)
		}
	}
	for _, w := range words {
		named := candidates(w)
		for _, name := range named {
			asked[name] = true
			must[name] = must[name] || len(named) == 1
		}
	}
	if asked["rdma"] && cfg.RDMA.Audit {
		asked["xdp"] = true
		must["xdp"] = true
	}
	absent = make(map[string]error)
	if len(cfg.Interfaces) == 0 { // only queue pairs are counted
		for _, name := range []string{"rdma", "xdp"} {
			if asked[name] {
				absent[name] = errNoInterface
			}
			delete(asked, name)
		}
	}
	var reasons []error
	ready := false
	for _, name := range []string{"rdma", "xdp", "sim"} {
		if !asked[name] {
			continue
		}
		b, err := openBackend(ctx, name, cfg, host, opts, g)
		if err == nil {
			open = append(open, b)
			err = absentDevice(b)
		}
		switch {
		case err == nil:
			ready = true
		case must[name] && cfg.Start != dataplane.StartDegraded:
			return open, nil, nameFlow(cfg, flow.Backend(name), err)
		default:
			level := slog.LevelWarn
			if errors.Is(err, backend.ErrNoDevice) {
				level = slog.LevelDebug // as on most hosts
			}
			opts.Logger.Log(ctx, level, "backend not opened", "backend", name, "reason", err)
			absent[name] = err
			reasons = append(reasons, err)
		}
	}
	if !ready && len(reasons) > 0 {
		return open, nil, nothingCounts(reasons)
	}
	return open, absent, nil
}

// nameFlow adds to err the first flow that asks for a backend which the configuration does not ask for.
func nameFlow(cfg dataplane.Config, name flow.Backend, err error) error {
	i := slices.IndexFunc(cfg.Flows, func(f flow.Flow) bool { return f.Backend == name })
	if i < 0 || cfg.Backend == name {
		return err
	}
	return fmt.Errorf("flow %q: %w", cfg.Flows[i].Name, err)
}

// nothingCounts joins the reasons why no backend was opened. Most hosts have no RDMA: where there is another reason, that
// one is the cause, and RDMA is not named.
func nothingCounts(reasons []error) error {
	causes := slices.DeleteFunc(slices.Clone(reasons), func(err error) bool { return errors.Is(err, backend.ErrNoDevice) })
	if len(causes) == 0 {
		causes = reasons
	}
	return errors.Join(causes...)
}

var errNoInterface = errors.New("the instance was started without an interface to count on")

// openBackend opens a backend by its name in the configuration.
func openBackend(ctx context.Context, name string, cfg dataplane.Config, host hosted.Host, opts Options, g *trial.Guard) (backend.Backend, error) {
	switch name {
	case "sim":
		return sim.New(nil), nil
	case "xdp":
		b, err := xdp.New(xdp.Options{Interfaces: cfg.Interfaces, Degraded: cfg.Start == dataplane.StartDegraded, Config: cfg.XDP, Flows: cfg.Flows, Restart: host.Restart, Logger: opts.Logger})
		if err != nil {
			return nil, err
		}
		return b, nil
	case "rdma":
		o := rdmaOptions(cfg, opts.Logger, g)
		o.Switchdev = opts.Switchdev
		b, err := rdma.New(ctx, o)
		if err != nil {
			return nil, err
		}
		return b, nil
	}
	return nil, fmt.Errorf("backend %q: %w: use auto, rdma, xdp or sim", name, dataplane.ErrInvalid)
}

func rdmaOptions(cfg dataplane.Config, log *slog.Logger, g *trial.Guard) rdma.Options {
	o := rdma.Options{RDMA: cfg.RDMA, Interfaces: cfg.Interfaces, Period: cfg.Poll.Period, Guard: g, Logger: log}
	if cfg.Poll.Busy {
		o.Period = backend.ReadPeriodMin
	}
	return o
}
