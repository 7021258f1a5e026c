package flowrows

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/bench"
)

// cooling is room for counters that were removed and cool down, so that no mirror grows under a measurement.
const cooling = 32768

// start starts an instance of n flows.
func (s *site) start(ctx context.Context, k kind, n int) (*subject, error) {
	cfg, err := s.config(n)
	if err != nil {
		return nil, err
	}
	switch k {
	case running:
		return s.run(ctx, cfg, n)
	case onNIC:
		if err := s.onNIC(&cfg, cfg.Interfaces[0].Name); err != nil {
			return nil, err
		}
	}
	cfg.Flows = flows(n)
	return s.embed(ctx, cfg)
}

// config returns the configuration of an instance with room for n flows, on a link of its own.
func (s *site) config(n int) (cfg dataplane.Config, err error) {
	g, err := s.prepare()
	if err != nil {
		return cfg, err
	}
	link, err := g.link()
	if err != nil {
		return cfg, err
	}
	return dataplane.Config{
		Instance:   fmt.Sprintf("%s-%s", g.name, link),
		Backend:    "xdp",
		Interfaces: []dataplane.Interface{{Name: link}},
		Mirror:     dataplane.MirrorConfig{Path: filepath.Join(g.dir, link+".mirror"), Counters: n + cooling},
		Poll:       dataplane.PollConfig{Period: time.Second},
		XDP:        dataplane.XDPConfig{PinDir: filepath.Join(g.bpf, link), MaxFlows: 2 * max(n, many)},
	}, nil
}

// embed starts an instance in this process.
func (s *site) embed(ctx context.Context, cfg dataplane.Config) (*subject, error) {
	var e *engine.Engine
	err := s.ground.ns.Do(func() (err error) {
		e, err = engine.New(ctx, cfg, engine.Options{})
		return err
	})
	if err != nil {
		return nil, err
	}
	s.open.Add(e.Close)
	return &subject{svc: e, cpu: bench.ProcessCPU}, nil
}

// onNIC has cfg count by a software device of the link. The kernel of the device is below the host's libraries in this
// process, by Preload.
func (s *site) onNIC(cfg *dataplane.Config, link string) error {
	cfg.Backend = "auto"
	cfg.RDMA.MLX5 = ibvtest.LibsIn(filepath.Join(s.bin, "ibvtest")).Shim // it has bulks of counters, as rdma-core 65
	if os.Getenv(ibvtest.EnvSysfs) == "" {
		return errors.New("looking for the uverbs kernel in software: it is not preloaded; `make build` leaves it beside flowtally")
	}

	// The devices of earlier instances stay.
	before := os.Getenv(ibvtest.EnvDevices)
	list := "mlx5_" + link + "=" + link
	if before != "" {
		list = before + "," + list
	}
	if err := os.Setenv(ibvtest.EnvDevices, list); err != nil {
		return fmt.Errorf("naming the software device: %w", err)
	}
	s.open.Add(func() error { return os.Setenv(ibvtest.EnvDevices, before) })
	return nil
}
