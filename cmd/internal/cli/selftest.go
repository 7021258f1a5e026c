package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/selftest"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
)

// selftestCmd compares sent with counted on a real interface.
type selftestCmd struct {
	outputFlag
	socketFlag
	Interface  string        `short:"i" help:"The interface to test." complete:"interfaces" placeholder:"NAME"`
	Peer       netip.Addr    `help:"A neighbor on the interface's link, which replies to echo requests." placeholder:"ADDR"`
	Send       bool          `help:"Send the frames to --peer, where selftest --receive counts them."`
	Receive    bool          `help:"Count the frames of a selftest --send on another host."`
	Count      int           `help:"How many frames, echo requests and messages are sent in each part." default:"1000" placeholder:"N"`
	Wait       time.Duration `help:"With --receive: how long the first frame may take." default:"1m" placeholder:"DURATION"`
	Mode       string        `help:"Where the XDP program of the test runs: ${enum}." enum:"auto,native,generic" default:"auto"`
	RDMADevice string        `name:"rdma-device" help:"Also test this RDMA device, with two queue pairs." placeholder:"NAME"`
	Function   string        `help:"In switchdev mode: another interface of the NIC on this host, of a virtual function. It sends frames that must count where the host receives them, and nowhere else." complete:"interfaces" placeholder:"NAME"`
	GIDIndex   *int          `name:"gid-index" help:"The row of the GID table that is the queue pairs' own address. Without it the device is asked." placeholder:"N"`
	Config     string        `short:"c" help:"Take the section rdma of this configuration file: the libraries." placeholder:"FILE"`
	DryRun     bool          `help:"Print the actions of the test, and do nothing."`
	Yes        bool          `short:"y" help:"Do not ask."`
	Strict     bool          `help:"Exit with 3 when a part was not tested."`
}

// Help is shown by selftest --help.
func (*selftestCmd) Help() string {
	return `Sends packets, and compares them with the counts of flows that exist for the test alone. It first says every action on the host, and asks. Egress: frames of the experimental EtherType 0x88b5, without and with a tag. Ingress: echo replies of a neighbor that --peer names, or the frames of selftest --send on another host. RDMA: messages between two queue pairs of one device. The byte basis of each source is measured. A part that was not tested says so, with the reason.

On an interface of a NIC in switchdev mode, --rdma-device NAME counts by the device that every other command refuses there, for this test alone, and the result says whether it may be allowed.

Where the running instance counts on the interface, the test adds flows to it, and removes them at the end; elsewhere a temporary instance counts. Needs root. Exit code 1 when a count differs or no part was tested, 3 when a part was not tested (with --strict).

Examples:

  flowtally selftest --interface eth0 --dry-run

  flowtally selftest --interface eth0 --peer 192.0.2.1 --yes -o json

  flowtally selftest --interface eth0 --receive

  flowtally selftest --interface eth0 --peer 192.0.2.10 --send --yes`
}

func (c *selftestCmd) Run(env *Env) error {
	o := c.options(env)
	if c.Config != "" {
		cfg, err := loadConfig(env.Context, c.Config)
		if err != nil {
			return &usageError{err}
		}
		o.RDMA = cfg.RDMA
	}
	if err := o.Validate(); err != nil {
		return &usageError{err}
	}

	plan := strings.Join(o.Plan(), "\n") + "\n"
	if c.DryRun {
		_, err := fmt.Fprint(env.Stdout, plan)
		return err
	}
	fmt.Fprint(env.Stderr, plan)
	if !c.Yes && !agreed(env) {
		return usagef("selftest was not confirmed; --yes does not ask")
	}

	rep, err := selftest.Run(env.Context, o)
	if err != nil {
		return hintInterface(fmt.Errorf("selftest: %w", err), c.Interface)
	}
	if c.json() {
		err = format.JSON(env.Stdout, rep)
	} else {
		err = rep.Print(env.Stdout)
	}
	switch {
	case err != nil:
		return err
	case !rep.Exact:
		return exitError(exitFailed)
	case !rep.Tested():
		return withHint(errors.New("selftest: no part was tested, for the reasons above"),
			"--interface NAME of an interface that is up; --peer ADDRESS tests its ingress, and --rdma-device NAME an RDMA device")
	case c.Strict && !rep.Complete:
		return exitError(exitDegraded)
	}
	return nil
}

// options returns the options given by the flags, without those of --config.
func (c *selftestCmd) options(env *Env) selftest.Options {
	lifted := "" // the device that may count in switchdev mode
	how := c.switchdev()
	if how != "" {
		lifted = c.RDMADevice
	}
	return selftest.Options{
		Interface: c.Interface,
		Peer:      c.Peer.Unmap(),
		Send:      c.Send,
		Receive:   c.Receive,
		Count:     c.Count,
		Wait:      c.Wait,
		Mode:      dataplane.Mode(c.Mode),
		Device:    c.RDMADevice,
		GIDIndex:  c.GIDIndex,
		Switchdev: how,
		Function:  c.Function,
		Suggest: func(rdma dataplane.RDMAConfig, device string) (dataplane.QueuePair, bool) {
			return engine.SuggestQueuePair(rdma, device, engine.SelfTrial())
		},
		Start: func(ctx context.Context, cfg dataplane.Config) (dataplane.Service, error) {
			e, err := engine.New(ctx, cfg, engine.Options{Logger: env.Logger, Trial: engine.SelfTrial(), Switchdev: lifted})
			if err != nil {
				return nil, err // never a nil *Engine in a Service
			}
			return e, nil
		},
		Running: func(ctx context.Context) (dataplane.Service, error) {
			_, answered := c.sayWaiting(env)
			defer answered()
			svc, _, err := c.dial(ctx, env.named)
			return svc, err
		},
		Ready: func(mac net.HardwareAddr) {
			fmt.Fprintf(env.Stderr, "counting on %s (%s): now, on the other host: flowtally selftest --interface NAME --peer ADDRESS-OF-THIS-HOST --send\n", c.Interface, mac)
		},
	}
}

// switchdev returns how the interface belongs to a NIC in switchdev mode, if the user has asked for a device by its name. If
// the mode cannot be read, the instance of the test refuses the device with the reason, and XDP counts.
func (c *selftestCmd) switchdev() string {
	if c.RDMADevice == "" || c.Interface == "" {
		return ""
	}
	how, err := engine.Switchdev(c.Interface)
	if err != nil {
		return ""
	}
	return how
}

// agreed reports whether the user answers yes.
func agreed(env *Env) bool {
	yes, _ := ask(env, "Go on?") // a signal is a no
	return yes
}
