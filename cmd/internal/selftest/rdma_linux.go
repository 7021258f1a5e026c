package selftest

import (
	"context"
	"errors"
	"fmt"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/shm"
)

// The two queue pairs, and what counts their operations.
const (
	near, nearSent   = "near", "near-sent"
	far, farReceived = "far", "far-received"
)

// testRDMA sends messages between two queue pairs of a device, and compares their number with the counted completions of
// both.
func (o Options) testRDMA(ctx context.Context, rep *Report) (err error) {
	cfg := o.pairConfig()
	svc, err := o.Start(ctx, cfg)
	if err != nil {
		rep.add(notTested("rdma", err.Error()))
		if errors.Is(err, dataplane.ErrInUse) || errors.Is(err, dataplane.ErrPermission) {
			return nil // the mirror belongs to a running instance or to another user: leave it
		}
		return sweepMirror(cfg.Instance)
	}
	defer func() { err = errors.Join(err, svc.Close(), sweepMirror(cfg.Instance)) }()

	info, err := svc.Info(ctx)
	if err != nil {
		return fmt.Errorf("reading the identity of the instance: %w", err)
	}
	m, err := shm.OpenReader(info.Mirror)
	if err != nil {
		return fmt.Errorf("opening the mirror: %w", err)
	}
	defer m.Close()

	posted, err := svc.QueuePairs().Post(ctx, near, dataplane.Send, o.Count)
	if err != nil {
		rep.add(notTested("rdma", fmt.Sprintf("posting %d messages on %s: %v", o.Count, o.Device, err)))
		return ctx.Err()
	}
	pairs, err := svc.QueuePairs().List(ctx)
	if err != nil {
		return fmt.Errorf("listing the queue pairs: %w", err)
	}
	sourceByPair := make(map[string]string)
	for _, q := range pairs {
		sourceByPair[q.Name] = q.Source.String()
	}

	for _, end := range []struct{ pair, counter string }{{near, nearSent}, {far, farReceived}} {
		v, err := o.settled(ctx, m, end.counter)
		if err != nil {
			return err
		}
		p := Part{
			Name:    "rdma " + end.counter,
			Source:  sourceByPair[end.pair],
			Sent:    posted.Completed,
			Counted: v.Packets,
		}
		p.judge()
		if errs := posted.Errors + v.Bytes; errs > 0 {
			p.Result = Differs
			p.Reason = fmt.Sprintf("%d completions in error", errs)
		}
		rep.add(p)
	}
	return nil
}

// pairConfig returns the configuration of an instance with two queue pairs connected with one another.
func (o Options) pairConfig() dataplane.Config {
	count := func(name string, operation dataplane.Operation) []dataplane.CompletionCounter {
		return []dataplane.CompletionCounter{{Name: name, Operations: []dataplane.Operation{operation}}}
	}
	return dataplane.Config{
		Instance: o.Instance + "-rdma",
		RDMA:     o.RDMA,
		QueuePairs: []dataplane.QueuePair{
			{
				Name:     near,
				Device:   o.Device,
				GIDIndex: o.GIDIndex,
				Connect:  far,
				Counters: count(nearSent, dataplane.Send),
			},
			{
				Name:     far,
				Device:   o.Device,
				GIDIndex: o.GIDIndex,
				Counters: count(farReceived, dataplane.Recv),
			},
		},
	}
}
