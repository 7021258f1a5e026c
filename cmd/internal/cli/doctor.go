package cli

import (
	"context"
	"net"
	"slices"

	"github.com/flowtally/flowtally/cmd/internal/hostcheck"
	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/probe"
)

// doctorCmd tests the abilities of this host: every check with its result, the reason and the next
// step.
type doctorCmd struct {
	outputFlag
	instanceFlag
	Config    string   `short:"c" help:"Ask about the interfaces, the devices, the libraries and the mirror of this configuration." placeholder:"FILE"`
	Plugin    string   `help:"The plugin's binary. Empty: flowtally-plugin beside this program, then in PATH." env:"FLOWTALLY_PLUGIN" placeholder:"PATH"`
	Strict    bool     `help:"Exit with 3 when a result is no. RDMA results count only if the configuration uses rdma, or has queue pairs."`
	Interface []string `arg:"" optional:"" name:"interface" complete:"interfaces" help:"Interfaces to test. Default: every interface that is up."`
}

func (c *doctorCmd) Run(env *Env) error {
	cfg, err := c.config(env.Context)
	if err != nil {
		return &usageError{err}
	}
	results := append(hostcheck.Checks(c.writtenPath(), c.Plugin), engine.Probe(env.Context, engine.ProbeOptions{
		// Without an interface a configuration counts on queue pairs alone.
		Interfaces: c.Interface, Devices: devicesOf(cfg), DevicesOnly: len(c.Interface) == 0 && len(cfg.QueuePairs) > 0, RDMA: cfg.RDMA,
		Trial: engine.SelfTrial(),
	})...)
	results = append(results, leftovers()...)
	if err := view.Checks(env.Stdout, c.json(), results); err != nil {
		return err
	}
	for _, r := range results {
		if c.Strict && r.Answer == probe.No && isAskedFor(cfg, r) {
			return exitError(exitDegraded)
		}
	}
	return nil
}

// config reads the configuration that the flags name, if any, which replaces the defaults of other
// flags.
func (c *doctorCmd) config(ctx context.Context) (cfg dataplane.Config, err error) {
	if c.Config == "" {
		return cfg, nil
	}
	if cfg, err = loadConfig(ctx, c.Config); err != nil {
		return cfg, err
	}
	if len(c.Interface) == 0 {
		c.Interface = present(cfg.Interfaces)
	}
	if c.Mirror == "" {
		c.Mirror = cfg.Mirror.Path
	}
	if c.Mirror == "" && cfg.Instance != "" {
		c.Instance = instanceName(cfg.Instance)
	}
	return cfg, nil
}

// present returns the interfaces of this host that a configuration counts on, and the names and patterns of those that
// it lacks and that are not optional.
func present(list []dataplane.Interface) (names []string) {
	there, _ := net.Interfaces() // without a list each entry is tested by its name
	for _, i := range list {
		found := false
		for _, ifi := range there {
			if e, ok := dataplane.FindInterface(list, ifi.Name); ok && e == i {
				names, found = append(names, ifi.Name), true
			}
		}
		if !found && !i.Optional {
			names = append(names, i.Name)
		}
	}
	return names
}

// isAskedFor reports whether the configuration needs a yes. It needs no flows of an RDMA device that only queue pairs
// name.
func isAskedFor(cfg dataplane.Config, r probe.Result) bool {
	forPairs := []string{engine.FeatureRDMA, engine.FeatureRDMADevices, engine.FeatureCompletions}
	return r.Backend != "rdma" || asksForRDMA(cfg) || len(cfg.QueuePairs) > 0 && slices.Contains(forPairs, r.Feature)
}

// devicesOf are the RDMA devices that a configuration's queue pairs name, each once.
func devicesOf(cfg dataplane.Config) (names []string) {
	for _, q := range cfg.QueuePairs {
		if !slices.Contains(names, q.Device) {
			names = append(names, q.Device)
		}
	}
	return names
}

// asksForRDMA reports whether the configuration names rdma, and not only auto.
func asksForRDMA(cfg dataplane.Config) bool {
	return cfg.Backend == "rdma" || slices.ContainsFunc(cfg.Flows, func(f flow.Flow) bool { return f.Backend == "rdma" })
}
