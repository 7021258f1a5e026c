package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// The call SetFlows, in the client and in the server.

func (r *remote) SetFlows(ctx context.Context, flows []flow.Flow, opts dataplane.SetOptions) (dataplane.Difference, error) {
	req, err := setToProto(flows, opts)
	if err != nil {
		return dataplane.Difference{}, err
	}
	return r.setFlows(ctx, r.stopBound, req)
}

func (s *server) SetFlows(stream grpc.ClientStreamingServer[pluginv1.SetFlowsRequest, pluginv1.SetFlowsResponse]) error {
	return serve(stream, func(ctx context.Context, req *pluginv1.SetFlowsRequest) (*pluginv1.SetFlowsResponse, error) {
		svc, err := s.service()
		if err != nil {
			return nil, toStatus(err)
		}
		if !req.GetDryRun() {
			s.asked(ctx, "setting flows")
		}
		d, err := setFlows(ctx, svc, req)

		if unfinished := (*dataplane.UnfinishedError)(nil); errors.As(err, &unfinished) {
			select {
			case err = <-unfinished.Outcome: // the host must know, to restart with the right flows
			case <-stream.Context().Done():
			}
		}
		if err != nil {
			return nil, toStatus(err)
		}
		s.relieve(len(req.GetFlows()) + len(d.Removed))
		return &pluginv1.SetFlowsResponse{Difference: differenceToProto(d)}, nil
	})
}

// relay is a Service that passes a request on to another process without decoding it.
type relay interface {
	relaySet(ctx context.Context, req *pluginv1.SetFlowsRequest) (dataplane.Difference, error)
}

func setFlows(ctx context.Context, svc dataplane.Service, req *pluginv1.SetFlowsRequest) (dataplane.Difference, error) {
	if r, is := svc.(relay); is {
		return r.relaySet(ctx, req)
	}
	flows, opts, err := setFromProto(req)
	if err != nil {
		return dataplane.Difference{}, fmt.Errorf("setting flows: %w", err)
	}
	return svc.SetFlows(ctx, flows, opts)
}

func (r *remote) setFlows(ctx context.Context, bound time.Duration, req *pluginv1.SetFlowsRequest) (dataplane.Difference, error) {
	resp, _, err := ask(ctx, r, bound, "setting flows", r.rpc.SetFlows, req)
	return differenceFromProto(resp.GetDifference()), err
}

func setToProto(flows []flow.Flow, opts dataplane.SetOptions) (*pluginv1.SetFlowsRequest, error) {
	msg, err := flowsToProto(flows)
	if err != nil {
		return nil, fmt.Errorf("setting flows: %w", err)
	}
	for from := range opts.Renames {
		if text(from) != from { // protobuf cannot encode it, and no flow has such a name
			return nil, fmt.Errorf("setting flows: renaming: %w: flow %q", dataplane.ErrNotFound, from)
		}
		if to := opts.Renames[from]; text(to) != to {
			return nil, fmt.Errorf("setting flows: %w", invalid("flow %q: the new name %q is not UTF-8", from, to))
		}
	}
	req := &pluginv1.SetFlowsRequest{
		Flows:      msg,
		DryRun:     opts.DryRun,
		Cost:       opts.Cost,
		KeepOthers: opts.KeepOthers,
		Renames:    opts.Renames,
		Keep:       carried(opts.Keep),
		KeepAdded:  opts.KeepAdded,
	}
	if opts.Config != nil {
		cfg := *opts.Config
		cfg.Flows = nil
		if req.Config, err = configToProto(cfg); err != nil {
			return nil, fmt.Errorf("setting flows: %w", err)
		}
	}
	return req, nil
}

func setFromProto(req *pluginv1.SetFlowsRequest) ([]flow.Flow, dataplane.SetOptions, error) {
	opts := dataplane.SetOptions{
		DryRun:     req.GetDryRun(),
		Cost:       req.GetCost(),
		KeepOthers: req.GetKeepOthers(),
		Renames:    req.GetRenames(),
		Keep:       req.GetKeep(),
		KeepAdded:  req.GetKeepAdded(),
	}
	flows, err := flowsFromProto(req.GetFlows())
	if err != nil {
		return nil, opts, err
	}
	if req.GetConfig() != nil {
		cfg, err := configFromProto(req.GetConfig())
		if err != nil {
			return nil, opts, err
		}
		opts.Config = &cfg
	}
	return flows, opts, nil
}

func differenceToProto(d dataplane.Difference) *pluginv1.Difference {
	out := &pluginv1.Difference{
		Added:     d.Added,
		Removed:   d.Removed,
		Unchanged: uint32(d.Unchanged),
		Settings:  fieldsToProto(d.Settings),
	}
	for _, r := range d.Renamed {
		out.Renamed = append(out.Renamed, &pluginv1.Rename{From: r.From, To: r.To})
	}
	for _, c := range d.Changed {
		out.Changed = append(out.Changed, &pluginv1.FlowChange{
			Name:   c.Name,
			Anew:   c.Anew,
			Fields: fieldsToProto(c.Fields),
		})
	}
	if c := d.Cost; c != nil {
		out.Cost = &pluginv1.Cost{
			Nodes: c.Nodes,
			Rules: c.Rules,
			Ns:    c.NS,
			Bound: uint32(c.Bound),
			Ipv4:  worstToProto(c.IPv4),
			Ipv6:  worstToProto(c.IPv6),
			Other: worstToProto(c.Other),
		}
	}
	return out
}

func differenceFromProto(p *pluginv1.Difference) dataplane.Difference {
	d := dataplane.Difference{
		Added:     p.GetAdded(),
		Removed:   p.GetRemoved(),
		Unchanged: int(p.GetUnchanged()),
		Settings:  fieldsFromProto(p.GetSettings()),
	}
	for _, r := range p.GetRenamed() {
		d.Renamed = append(d.Renamed, dataplane.Rename{From: r.GetFrom(), To: r.GetTo()})
	}
	for _, c := range p.GetChanged() {
		d.Changed = append(d.Changed, dataplane.FlowChange{
			Name:   c.GetName(),
			Anew:   c.GetAnew(),
			Fields: fieldsFromProto(c.GetFields()),
		})
	}
	if c := p.GetCost(); c != nil {
		d.Cost = &dataplane.Cost{
			Nodes: c.GetNodes(),
			Rules: c.GetRules(),
			NS:    c.GetNs(),
			Bound: int(c.GetBound()),
			IPv4:  worstFromProto(c.GetIpv4()),
			IPv6:  worstFromProto(c.GetIpv6()),
			Other: worstFromProto(c.GetOther()),
		}
	}
	return d
}

func worstToProto(w dataplane.WorstCost) *pluginv1.WorstCost {
	return &pluginv1.WorstCost{Nodes: uint32(w.Nodes), Rules: uint32(w.Rules), Ns: w.NS}
}

func worstFromProto(w *pluginv1.WorstCost) dataplane.WorstCost {
	return dataplane.WorstCost{Nodes: int(w.GetNodes()), Rules: int(w.GetRules()), NS: w.GetNs()}
}

func fieldsToProto(fields []dataplane.FieldChange) (out []*pluginv1.FieldChange) {
	for _, f := range fields {
		out = append(out, &pluginv1.FieldChange{Field: text(f.Field), From: text(f.From), To: text(f.To)})
	}
	return out
}

func fieldsFromProto(fields []*pluginv1.FieldChange) (out []dataplane.FieldChange) {
	for _, f := range fields {
		out = append(out, dataplane.FieldChange{Field: f.GetField(), From: f.GetFrom(), To: f.GetTo()})
	}
	return out
}
