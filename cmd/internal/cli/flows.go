package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/selection"
	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/shm"
)

// flowsCmd lists and changes the flows of a running instance, over its control socket.
type flowsCmd struct {
	List   flowsListCmd   `cmd:"" default:"withargs" help:"Show every flow: where it is counted, and why not elsewhere; below them, the conditions."`
	Add    flowsAddCmd    `cmd:"" help:"Add flows to the running instance: all or none."`
	Remove flowsRemoveCmd `cmd:"" help:"Remove flows from the running instance."`
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
		statuses = c.statuses(ctx, env, svc)
		cost = c.cost(ctx, env, svc)
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

// cost returns what a packet costs in XDP now, for JSON. It is nil if XDP counts no flow. The instance computes it for a
// dry run that changes nothing.
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

// statuses returns, for JSON, the status of each counter with one of the names, or of all counters if there is no name.
// An unreadable mirror is not an error of the command: a message tells about it, and each flow has the status null.
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
