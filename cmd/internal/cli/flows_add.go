package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/configs"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

type flowsAddCmd struct {
	outputFlag
	controlFlag
	Name      string            `arg:"" optional:"" help:"Name of the flow and of its counter."`
	Match     string            `arg:"" optional:"" help:"The packets to count, such as 'ipv4 dst 192.0.2.10 tcp dport 443'; 'any' is every packet."`
	File      string            `short:"f" help:"In place of one flow: add the flows of this file, a list as below flows: of a configuration; - is standard input." placeholder:"FILE"`
	Priority  uint16            `help:"Of overlapping flows the lowest number counts." default:"0"`
	Direction string            `help:"Side of the interface: ${enum}." enum:"ingress,egress" default:"ingress"`
	Action    string            `help:"Action on a matched packet: ${enum}." enum:"count,drop" default:"count"`
	Backend   string            `help:"Backend that counts it: auto, rdma, xdp or sim. Default: the backend of the configuration." enum:",auto,rdma,xdp,sim" default:"" placeholder:"NAME"`
	Interface string            `help:"Count on this interface alone." complete:"interfaces" placeholder:"NAME"`
	Latency   bool              `help:"Give the counter a record of its own, published at the lowest latency."`
	Label     map[string]string `help:"A label that travels to the mirror. May be repeated." mapsep:"none" placeholder:"KEY=VALUE"`
}

// Help is shown by flows add --help.
func (*flowsAddCmd) Help() string {
	return `Examples:

  flowtally flows add web 'ipv4 dst 192.0.2.10 tcp dport 443'

  flowtally flows add tenant-7 'vxlan vni 7 inner udp' --interface eth0 --label tenant=7

  flowtally flows add blocked 'ipv6 src 2001:db8::/32' --action drop --priority 10

  flowtally flows add -f flows.yaml`
}

func (c *flowsAddCmd) Run(env *Env) error {
	flows, err := c.flows(env)
	if err != nil {
		return err
	}

	var placements []dataplane.Placement
	var statuses view.Statuses
	err = c.with(env, func(ctx context.Context, svc dataplane.Service) (err error) {
		placements, err = svc.AddFlows(ctx, flows...)
		if err != nil && c.File == "" {
			return fmt.Errorf("adding flow %q: %w", flows[0].Name, err)
		}
		if err != nil {
			return fmt.Errorf("adding %d flows: %w", len(flows), err)
		}

		names := make([]string, len(flows))
		for i, f := range flows {
			names[i] = f.Name
		}
		statuses = c.statuses(ctx, env, svc, names...)
		return nil
	})
	if err != nil {
		return err
	}
	return view.Added(env.Stdout, c.json(), placements, statuses)
}

// flows returns the flow described by the flags, or the flows of --file.
func (c *flowsAddCmd) flows(env *Env) ([]flow.Flow, error) {
	switch {
	case c.File != "" && c.namesOneFlow():
		return nil, withHint(usagef("--file excludes NAME, MATCH and the flags of one flow, which stand in the file"), "flowtally flows add --help")
	case c.File == "" && c.Match == "":
		return nil, withHint(usagef(`expected "NAME MATCH", or --file FILE`), "flowtally flows add --help")
	case c.File != "":
		return c.fromFile(env)
	}
	f, err := c.flow()
	return []flow.Flow{f}, err
}

// namesOneFlow reports whether the user gave an argument or a flag that describes a single flow.
func (c *flowsAddCmd) namesOneFlow() bool {
	return c.Name != "" ||
		c.Match != "" ||
		c.Priority != 0 ||
		c.Direction != "ingress" ||
		c.Action != "count" ||
		c.Backend != "" ||
		c.Interface != "" ||
		c.Latency ||
		len(c.Label) > 0
}

// flow returns the flow described by the flags, or an error with every mistake in them.
func (c *flowsAddCmd) flow() (flow.Flow, error) {
	f := flow.Flow{
		Name:      c.Name,
		Priority:  c.Priority,
		Interface: c.Interface,
		Latency:   c.Latency,
		Labels:    c.Label,
		Backend:   flow.Backend(c.Backend),
	}
	match, matchErr := parseMatch(c.Match)
	f.Match = match
	err := errors.Join(matchErr, f.Direction.UnmarshalText([]byte(c.Direction)), f.Action.UnmarshalText([]byte(c.Action)))

	if err == nil {
		err = f.Validate()
	}
	if err != nil {
		return flow.Flow{}, &usageError{err}
	}
	return f, nil
}

// fromFile returns the flows of --file.
func (c *flowsAddCmd) fromFile(env *Env) ([]flow.Flow, error) {
	name := c.File
	if name == "-" {
		name = "standard input"
	}

	data, err := await(env.Context, func() ([]byte, error) { return c.readFile(env.Stdin) })
	if errors.Is(err, os.ErrNotExist) {
		err = withHint(err, "check the path; - is standard input")
	}
	if err != nil {
		return nil, &usageError{fmt.Errorf("reading flows from %s: %w", name, directory(err))}
	}

	flows, err := configs.ParseFlows(name, data)
	if err == nil && len(flows) == 0 {
		err = fmt.Errorf("%s: no flow in it", name)
	}
	if err != nil {
		return nil, &usageError{err}
	}
	return flows, nil
}

func (c *flowsAddCmd) readFile(stdin io.Reader) ([]byte, error) {
	if c.File == "-" {
		return readFlows(stdin)
	}
	f, err := os.Open(c.File)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readFlows(f)
}

// mostFlowBytes limits a file of flows, like a configuration file.
const mostFlowBytes = 256 << 20

// readFlows reads a file of flows, up to mostFlowBytes: a pipe may have no end.
func readFlows(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, mostFlowBytes+1))
	if err == nil && len(data) > mostFlowBytes {
		err = fmt.Errorf("more than %d MiB", mostFlowBytes>>20)
	}
	return data, err
}
