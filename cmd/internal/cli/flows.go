package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/selection"
	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/configs"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/plugin"
	"github.com/flowtally/flowtally/shm"
)

// flowsCmd talks to a running instance over its control socket.
type flowsCmd struct {
	List   flowsListCmd   `cmd:"" default:"withargs" help:"Show every flow: where it is counted, and why not elsewhere; below them, the conditions."`
	Add    flowsAddCmd    `cmd:"" help:"Add flows to the running instance: all or none."`
	Remove flowsRemoveCmd `cmd:"" help:"Remove flows from the running instance."`
}

// socketFlag names the instance to talk to.
type socketFlag struct {
	Instance instanceName `help:"The instance: names the control socket." default:"default" env:"FLOWTALLY_INSTANCE" placeholder:"NAME"`
	Socket   string       `help:"The control socket. Empty: /run/flowtally-control/INSTANCE.sock, or flowtally-control in $$XDG_RUNTIME_DIR of another user than root." env:"FLOWTALLY_SOCKET" placeholder:"PATH"`
}

// path returns the path of the control socket.
func (s socketFlag) path() string {
	if s.Socket != "" {
		return s.Socket
	}
	return plugin.FindControl(string(s.Instance))
}

// dial connects to the running instance. named is the instance that was named beside the socket; empty: none was.
func (s socketFlag) dial(ctx context.Context, named string) (svc dataplane.Service, info dataplane.Info, err error) {
	if svc, err = plugin.Dial(ctx, s.path()); err != nil {
		return nil, info, err
	}
	if info, err = svc.Info(ctx); err != nil {
		err = fmt.Errorf("reading the identity of the instance at %s: %w", s.path(), err)
	} else if named != "" && named != info.Instance {
		err = withHint(usagef("%s is the socket of instance %s, and --instance or $FLOWTALLY_INSTANCE names instance %s", s.path(), info.Instance, named),
			"give one of --socket and --instance; $FLOWTALLY_SOCKET counts as the first")
	}
	if err != nil {
		return nil, info, errors.Join(err, svc.Close())
	}
	return svc, info, nil
}

// controlFlag names the instance to talk to, and bounds the talk.
type controlFlag struct {
	socketFlag
	Timeout time.Duration `help:"Give up on an instance that has not answered by then. 0: wait." default:"0" placeholder:"DURATION"`
}

// with calls f with the running instance, within the time of --timeout. f prints nothing: whoever reads the output may
// take his time.
func (c controlFlag) with(env *Env, f func(context.Context, dataplane.Service) error) error {
	if c.Timeout < 0 {
		return usagef("--timeout %v: not negative", c.Timeout)
	}
	return c.talk(env, c.Timeout, f)
}

// quiet is how long a command waits for an instance before it says for whom it waits.
const quiet = 2 * time.Second

// waiting says for whom the command waits, unless answered is called soon.
func (s socketFlag) waiting(env *Env) (whom *atomic.Value, answered func() bool) {
	whom = new(atomic.Value)
	whom.Store("the instance at " + s.path())
	slow := time.AfterFunc(quiet, func() { fmt.Fprintf(env.Stderr, "flowtally: waiting for %s\n", whom.Load()) })
	return whom, slow.Stop
}

// talk calls f with the running instance. The context of f ends after timeout, unless that is 0.
func (s socketFlag) talk(env *Env, timeout time.Duration, f func(context.Context, dataplane.Service) error) (err error) {
	whom, answered := s.waiting(env)
	defer answered()
	ctx := env.Context
	if timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		ctx = limited
		defer func() {
			if errors.Is(err, context.DeadlineExceeded) && env.Context.Err() == nil {
				err = withHint(fmt.Errorf("%s has not answered within %v: %w", whom.Load(), timeout, err),
					"a longer --timeout; a plugin that stands still for %v is started again", plugin.DefaultWatchdog)
			}
		}()
	}
	svc, info, err := s.dial(ctx, env.named)
	if errors.Is(err, dataplane.ErrUnavailable) {
		return s.unreached(err)
	}
	if errors.Is(err, dataplane.ErrPermission) {
		return withHint(err, "SUDO # or as the user who runs the instance")
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, svc.Close()) }()
	if info.PID != 0 {
		whom.Store(fmt.Sprintf("instance %s, process %d", info.Instance, info.PID))
	}
	return f(ctx, svc)
}

// unreached adds the next step where no process listens on the control socket.
func (s socketFlag) unreached(err error) error {
	if s.Socket == "" && s.counts() {
		return withHint(err, "--socket PATH # instance %s counts, but listens elsewhere or not at all; a program that embeds it calls plugin.ServeControl", s.Instance)
	}
	return withHint(err, "flowtally run --config FILE # starts an instance; --instance NAME or --socket PATH reaches another")
}

// counts reports whether the instance has a mirror that is written.
func (s socketFlag) counts() bool {
	in, err := shm.Open(string(s.Instance))
	if err != nil {
		return false
	}
	defer in.Close()
	return in.Reader().Status().Alive
}

// parseMatch is flow.ParseMatch with each mistake marked in the text.
func parseMatch(text string) (flow.Match, error) {
	m, err := flow.ParseMatch(text)
	var mistakes flow.ParseErrors
	if !errors.As(err, &mistakes) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
		return m, err
	}
	marks := []rune(strings.Repeat(" ", len([]rune(text))+1))
	for _, e := range mistakes {
		marks[len([]rune(text[:min(e.Offset, len(text))]))] = '^'
	}
	return m, fmt.Errorf("%w\n  %s\n  %s", err, text, strings.TrimRight(string(marks), " "))
}

type flowsListCmd struct {
	outputFlag
	controlFlag
	selection.Options
	Name []string `complete:"counters" help:"Only flows of this name, or pattern as of the shell, such as 'w*'. May be repeated." placeholder:"NAME"`
}

func (c *flowsListCmd) Run(env *Env) error {
	wanted, err := newSelection(c.Name, c.Options)
	if err != nil {
		return err
	}
	var placements []dataplane.Placement
	var conditions []dataplane.Condition
	var statuses view.Statuses
	var cost *dataplane.Cost
	err = c.with(env, func(ctx context.Context, svc dataplane.Service) (err error) {
		if placements, err = svc.Placements(ctx); err != nil {
			return fmt.Errorf("listing the flows: %w", err)
		}
		if conditions, err = svc.Conditions(ctx); err != nil {
			return fmt.Errorf("reading the conditions: %w", err)
		}
		statuses, cost = c.statuses(ctx, env, svc), c.cost(ctx, env, svc)
		return nil
	})
	if err != nil {
		return err
	}
	if placements, err = view.SelectFlows(wanted, placements); err != nil {
		return err
	}
	return view.Flows(env.Stdout, c.json(), wanted, placements, env.completed(conditions), time.Now(), statuses, cost)
}

// cost returns what a packet costs in XDP now, for JSON, or nil where XDP counts no flow.
func (c *flowsListCmd) cost(ctx context.Context, env *Env, svc dataplane.Service) *dataplane.Cost {
	if !c.json() {
		return nil
	}
	d, err := svc.SetFlows(ctx, nil, dataplane.SetOptions{DryRun: true, KeepOthers: true, Cost: true})
	if err != nil {
		fmt.Fprintf(env.Stderr, "flowtally: the cost of a packet is null: %v\n", err)
	}
	return d.Cost
}

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

// flow returns the flow of the flags, or every mistake in them.
func (c *flowsAddCmd) flow() (flow.Flow, error) {
	f := flow.Flow{
		Name: c.Name, Priority: c.Priority, Interface: c.Interface, Latency: c.Latency, Labels: c.Label, Backend: flow.Backend(c.Backend),
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

// flows returns the flow of the flags, or the flows of the file.
func (c *flowsAddCmd) flows(env *Env) ([]flow.Flow, error) {
	single := c.Name != "" || c.Match != "" || c.Priority != 0 || c.Direction != "ingress" || c.Action != "count" || c.Backend != "" ||
		c.Interface != "" || c.Latency || len(c.Label) > 0
	switch {
	case c.File != "" && single:
		return nil, withHint(usagef("--file excludes NAME, MATCH and the flags of one flow, which stand in the file"), "flowtally flows add --help")
	case c.File == "" && c.Match == "":
		return nil, withHint(usagef(`expected "NAME MATCH", or --file FILE`), "flowtally flows add --help")
	case c.File == "":
		f, err := c.flow()
		return []flow.Flow{f}, err
	}
	name, read := c.File, func() ([]byte, error) {
		f, err := os.Open(c.File)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return readFlows(f)
	}
	if c.File == "-" {
		name, read = "standard input", func() ([]byte, error) { return readFlows(env.Stdin) }
	}
	data, err := await(env.Context, read)
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

// mostFlowBytes is the bound that a configuration has too.
const mostFlowBytes = 256 << 20

// readFlows reads a file of flows, which may have no end.
func readFlows(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, mostFlowBytes+1))
	if err == nil && len(data) > mostFlowBytes {
		err = fmt.Errorf("more than %d MiB", mostFlowBytes>>20)
	}
	return data, err
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

type flowsRemoveCmd struct {
	controlFlag
	Name []string `arg:"" help:"Names of the flows." complete:"counters"`
}

func (c *flowsRemoveCmd) Run(env *Env) error {
	return c.with(env, func(ctx context.Context, svc dataplane.Service) error {
		if err := svc.RemoveFlows(ctx, c.Name...); err != nil {
			return fmt.Errorf("removing %s: %w", strings.Join(c.Name, ", "), err)
		}
		return nil
	})
}

// statuses returns the status of each counter with one of those names, for JSON, or of all if there are no names. If
// the mirror cannot be read, it prints the reason on stderr, and the fields of the status are null.
func (f outputFlag) statuses(ctx context.Context, env *Env, svc dataplane.Service, names ...string) (s view.Statuses) {
	if !f.json() {
		return s
	}
	info, err := svc.Info(ctx)
	if err == nil {
		s, err = readStatuses(info.Mirror, names...)
	}
	if err != nil {
		fmt.Fprintf(env.Stderr, "flowtally: the fields of the flows that the mirror holds are null: %v\n", err)
	}
	return s
}

func readStatuses(path string, names ...string) (view.Statuses, error) {
	m, err := openMirror(readerFlag{instanceFlag: instanceFlag{Mirror: path}})
	if err != nil {
		return view.Statuses{}, err
	}
	defer m.close()
	wanted, err := newSelection(names, selection.Options{})
	if err != nil {
		return view.Statuses{}, err
	}
	r, err := m.read(wanted)
	if err != nil && !errors.Is(err, shm.ErrNotFound) {
		return view.Statuses{}, err
	}
	return view.StatusesOf(r), nil
}
