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

// doctorCmd tests the abilities of this host, and reports each with its result, the reason and the next step.
type doctorCmd struct {
	outputFlag
	instanceFlag
	Config    string   `short:"c" help:"Ask about the interfaces, the devices, the libraries and the mirror of this configuration." placeholder:"FILE"`
	Plugin    string   `help:"The plugin's binary. Empty: flowtally-plugin beside this program, then in PATH." env:"FLOWTALLY_PLUGIN" placeholder:"PATH"`
	Strict    bool     `help:"Exit with 3 when a result is no. RDMA results count only if the configuration uses rdma, or has queue pairs."`
	Interface []string `arg:"" optional:"" name:"interface" complete:"interfaces" help:"Interfaces to test. Default: every interface that is up."`
}

// Help is shown by doctor --help.
func (*doctorCmd) Help() string {
	return `A result is yes, no or inconclusive; inconclusive means that the test could not run, mostly for want of a privilege. The tests attach no program to an interface. An RDMA device is tested by use: flows without matching packets are made and removed.

Examples:

  flowtally doctor

  flowtally doctor eth0 eth1 --strict -o json

  flowtally doctor --config /etc/flowtally.yaml`
}

func (c *doctorCmd) Run(env *Env) error {
	cfg, err := c.config(env.Context)
	if err != nil {
		return &usageError{err}
	}

	results := slices.Concat(
		hostcheck.Checks(c.writtenPath(), c.Plugin),
		engine.Probe(env.Context, engine.ProbeOptions{
			Interfaces:  c.Interface,
			Devices:     devicesOf(cfg),
			DevicesOnly: len(c.Interface) == 0 && len(cfg.QueuePairs) > 0, // it counts on queue pairs alone
			RDMA:        cfg.RDMA,
			Period:      cfg.Poll.Period,
			Trial:       engine.SelfTrial(),
		}),
		leftovers(),
	)
	if err := view.Checks(env.Stdout, c.json(), results); err != nil {
		return err
	}

	if !c.Strict {
		return nil
	}
	for _, r := range results {
		if r.Answer == probe.No && isAskedFor(cfg, r) {
			return exitError(exitDegraded)
		}
	}
	return nil
}

// config reads the configuration of --config, if any. It fills in arguments and flags not given by the user.
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

// present returns the interfaces of this host on which a configuration counts. It adds names and patterns without an
// interface here, unless they are optional, because doctor must report them.
func present(list []dataplane.Interface) (names []string) {
	links, _ := net.Interfaces() // without this list, each entry is tested by its name
	for _, i := range list {
		found := false
		for _, link := range links {
			if e, ok := dataplane.FindInterface(list, link.Name); ok && e == i {
				found = true
				names = append(names, link.Name)
			}
		}
		if !found && !i.Optional {
			names = append(names, i.Name)
		}
	}
	return names
}

// devicesOf returns the RDMA devices of a configuration's queue pairs, each once.
func devicesOf(cfg dataplane.Config) (names []string) {
	for _, q := range cfg.QueuePairs {
		if !slices.Contains(names, q.Device) {
			names = append(names, q.Device)
		}
	}
	return names
}

// isAskedFor reports whether --strict must fail on a no here, because the configuration needs this feature. Queue pairs
// need their device, but not its flow tables.
func isAskedFor(cfg dataplane.Config, r probe.Result) bool {
	if r.Backend != "rdma" || asksForRDMA(cfg) {
		return true
	}
	forPairs := []string{engine.FeatureRDMA, engine.FeatureRDMADevices, engine.FeatureCompletions}
	return len(cfg.QueuePairs) > 0 && slices.Contains(forPairs, r.Feature)
}

// asksForRDMA reports whether the configuration names the backend rdma. With auto, RDMA is welcome but not needed.
func asksForRDMA(cfg dataplane.Config) bool {
	return cfg.Backend == "rdma" || slices.ContainsFunc(cfg.Flows, func(f flow.Flow) bool { return f.Backend == "rdma" })
}
