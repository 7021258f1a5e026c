package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/lab/demo"
	"github.com/flowtally/flowtally/plugin"
)

// demoCmd sends real traffic and compares it with the mirror's counts.
type demoCmd struct {
	outputFlag
	Seconds  int          `help:"How long traffic is sent at full speed." default:"5" placeholder:"N"`
	Mode     string       `help:"Where XDP programs run: ${enum}. Both is one interface each." enum:"both,native,generic" default:"both"`
	Backend  string       `help:"What counts: ${enum}. Rdma is over a software NIC, with XDP beside it." enum:"xdp,rdma" default:"xdp"`
	RDMABy   string       `name:"rdma-by" help:"By which interface the NIC counts: ${enum}. Verbs leaves out the flows that only DevX can count." enum:"devx,verbs" default:"devx"`
	Device   string       `name:"rdma-device" hidden:"" help:"The device of a preloaded uverbs kernel, below the installed libraries (make demo-rdma)." placeholder:"NAME"`
	Instance instanceName `help:"The instance. Default: a unique one, removed at the end." placeholder:"NAME"`
	Plugin   string       `help:"The plugin's binary. Empty: flowtally-plugin beside this program, or in PATH." env:"FLOWTALLY_PLUGIN" placeholder:"PATH"`
}

// Help is shown by demo --help.
func (*demoCmd) Help() string {
	return `Makes two network namespaces and veth pairs between them, starts the plugin, sends UDP, TCP, ICMP, VLAN, QinQ, VXLAN, GRE and fragmented traffic over IPv4 and IPv6, and compares flow by flow the packets that the kernel accepted from the senders with the mirror's counts. Everything is gone afterwards. Needs root.

With --backend rdma the flows are counted by the flow tables of an RDMA NIC that is a program: the software libibverbs and libmlx5 that "make build" leaves in ibvtest/ beside flowtally. They see the same packets as XDP, which counts them too, in an instance of its own. This shows how flowtally drives libibverbs; it shows nothing about a card. With --rdma-by verbs the NIC counts without DevX. "make demo-rdma RDMA_CORE=65.0" runs the demo over the real libmlx5 of a release.

Exit code 1 when any count differs.`
}

func (c *demoCmd) Run(env *Env) error {
	if err := c.validate(); err != nil {
		return err
	}
	path, err := plugin.Find(c.Plugin)
	if err != nil {
		return withHint(err, "make build, or --plugin PATH")
	}

	// Look for the libraries first, but print about them only after isolate. It may execute this program again, which
	// would print twice.
	var rdma dataplane.RDMAConfig
	software := c.Backend == "rdma" && c.Device == ""
	if software {
		if rdma, err = softwareRDMA(); err != nil {
			return err
		}
	}
	if err := isolate(); err != nil {
		return err
	}
	if c.Device != "" {
		fmt.Fprintf(env.Stderr, "the RDMA NIC is software: a uverbs kernel below the installed libibverbs and libmlx5 matches the packets of a veth, in place of a card\n")
	}
	if software {
		fmt.Fprintf(env.Stderr, "the RDMA NIC is software: %s and %s match the packets of a veth, in place of a card\n", rdma.Library, filepath.Base(rdma.MLX5))
		dir, leave, err := withinReach(filepath.Dir(rdma.Library))
		if err != nil {
			return err
		}
		defer leave()
		rdma.Library = filepath.Join(dir, filepath.Base(rdma.Library))
		rdma.MLX5 = filepath.Join(dir, filepath.Base(rdma.MLX5))
	}

	screen := &demoScreen{env: env, json: c.json(), total: time.Duration(c.Seconds) * time.Second}
	rep, err := demo.Run(env.Context, demo.Options{
		For:      screen.total,
		Mode:     demo.Mode(c.Mode),
		Backend:  c.Backend,
		RDMA:     rdma,
		Device:   c.Device,
		Verbs:    c.RDMABy == "verbs",
		Instance: string(c.Instance),
		Launch: func(ctx context.Context, cfg dataplane.Config, vars []string) (dataplane.Service, error) {
			return plugin.Launch(ctx, plugin.Options{Path: path, Env: vars, Config: cfg, Logger: env.Logger})
		},
		Progress: screen.show,
		Logger:   env.Logger,
	})
	screen.close()
	if err != nil {
		return err
	}

	if c.json() {
		err = format.JSON(env.Stdout, rep)
	} else {
		_, err = fmt.Fprint(env.Stdout, view.Demo(rep.Flows), view.DemoVerdict(rep))
	}
	if err == nil && !rep.Exact {
		err = exitError(exitFailed)
	}
	return err
}

// validate returns an error for flags that contradict one another.
func (c *demoCmd) validate() error {
	switch {
	case c.Seconds < 1:
		return usagef("--seconds %d: at least 1", c.Seconds)
	case c.Backend == "rdma" && c.Mode != string(demo.Both):
		return usagef("--mode %s: with --backend rdma there is one interface, whose XDP programs are native", c.Mode)
	case c.Backend != "rdma" && (c.RDMABy != "devx" || c.Device != ""):
		return usagef("--rdma-by and --rdma-device: with --backend rdma only")
	}
	return nil
}

// softwareRDMA returns the paths of the libraries that replace a NIC. make build puts them beside this program.
func softwareRDMA() (dataplane.RDMAConfig, error) {
	self, err := os.Executable()
	if err != nil {
		return dataplane.RDMAConfig{}, fmt.Errorf("looking for the software RDMA library: %w", err)
	}

	dir := filepath.Join(filepath.Dir(self), "ibvtest")
	rdma := dataplane.RDMAConfig{
		Library: filepath.Join(dir, "libibverbs.so.1"),
		MLX5:    filepath.Join(dir, "libmlx5.so.1"),
	}
	for _, path := range []string{rdma.Library, rdma.MLX5} {
		if _, err := os.Stat(path); err != nil {
			return rdma, withHint(fmt.Errorf("demo: the software RDMA library is not there: %w", err), "install gcc, then: make build")
		}
	}
	return rdma, nil
}
