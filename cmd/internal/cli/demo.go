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
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/internal/lab/demo"
	"github.com/flowtally/flowtally/plugin"
)

// demoCmd sends real traffic and compares it with the mirror's counts.
type demoCmd struct {
	outputFlag
	Seconds  int          `help:"How long traffic is sent at full speed." default:"5" placeholder:"N"`
	Mode     string       `help:"Where XDP programs run: ${enum}. Both is one interface each." enum:"both,native,generic" default:"both"`
	Backend  string       `help:"What counts: ${enum}. Rdma is over a NIC in software, with XDP beside it." enum:"xdp,rdma" default:"xdp"`
	RDMABy   string       `name:"rdma-by" help:"By which interface the NIC counts: ${enum}. Verbs leaves out the flows that only DevX can count." enum:"devx,verbs" default:"devx"`
	Device   string       `name:"rdma-device" hidden:"" help:"The device of a preloaded uverbs kernel, below the installed libraries (make demo-rdma)." placeholder:"NAME"`
	Instance instanceName `help:"The instance. Default: a unique one, removed at the end." placeholder:"NAME"`
	Plugin   string       `help:"The plugin's binary. Empty: flowtally-plugin beside this program, or in PATH." env:"FLOWTALLY_PLUGIN" placeholder:"PATH"`
}

// Help is shown by demo --help.
func (*demoCmd) Help() string {
	return `Makes two network namespaces and veth pairs between them, starts the plugin, sends UDP, TCP, ICMP, VLAN, QinQ, VXLAN, GRE and fragmented traffic over IPv4 and IPv6, and compares flow by flow the packets that the kernel accepted from the senders with the mirror's counts. Everything is gone afterwards. Needs root.

With --backend rdma the flows are counted by the flow tables of an RDMA NIC that is a program: the libibverbs and libmlx5 that this machine has installed, over a uverbs kernel in software that "make build" leaves in ibvtest/ beside flowtally. It sees the same packets as XDP, which counts them too, in an instance of its own. This shows how flowtally drives libibverbs; it shows nothing about a card. With --rdma-by verbs the NIC counts without DevX. "make demo-rdma RDMA_CORE=65.0" runs the demo over the libraries of another release.

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

	// Look for the kernel first, but print about it only after isolate. It may execute this program again, which would
	// print twice.
	var kernel string
	if c.Backend == "rdma" && c.Device == "" {
		if kernel, err = uverbsKernel(); err != nil {
			return err
		}
	}
	if err := isolate(); err != nil {
		return err
	}
	if c.Backend == "rdma" {
		fmt.Fprintf(env.Stderr, "the RDMA NIC is software: a uverbs kernel below the installed libibverbs and libmlx5 matches the packets of a veth, in place of a card\n")
	}
	var preload []string
	if kernel != "" {
		library, leave, err := withinReach(kernel)
		if err != nil {
			return err
		}
		defer leave()
		sysfs, err := os.MkdirTemp("", "flowtally-demo-sysfs-")
		if err != nil {
			return fmt.Errorf("demo: making room for the sysfs of the NIC: %w", err)
		}
		defer os.RemoveAll(sysfs)
		// As ibv/ibvtest has them: the programs do not import that package (internal/rules).
		preload = []string{"LD_PRELOAD=" + library, "FLOWTALLY_IBVTEST_SYSFS=" + sysfs}
	}

	screen := &demoScreen{env: env, json: c.json(), total: time.Duration(c.Seconds) * time.Second}
	rep, err := demo.Run(env.Context, demo.Options{
		For:      screen.total,
		Mode:     demo.Mode(c.Mode),
		Backend:  c.Backend,
		Env:      preload,
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

// uverbsKernel returns the path of the uverbs kernel in software, which make build puts beside this program. It needs the
// libraries of the machine.
func uverbsKernel() (string, error) {
	if err := ibv.CheckInstalled(ibv.Options{}); err != nil {
		return "", fmt.Errorf("demo: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("looking for the uverbs kernel in software: %w", err)
	}

	path := filepath.Join(filepath.Dir(self), "ibvtest", "uverbs.so")
	if _, err := os.Stat(path); err != nil {
		return "", withHint(fmt.Errorf("demo: the uverbs kernel in software is not there: %w", err), "install gcc, then: make build")
	}
	return path, nil
}
