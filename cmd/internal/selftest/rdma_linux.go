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
	suggested := o.suggest()
	cfg := o.pairConfig(suggested)
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
	stateByPair := make(map[string]dataplane.QueuePairState)
	for _, q := range pairs {
		stateByPair[q.Name] = q
	}

	for _, end := range []struct{ pair, counter string }{{near, nearSent}, {far, farReceived}} {
		v, err := o.settled(ctx, m, end.counter)
		if err != nil {
			return err
		}
		p := Part{
			Name:      "rdma " + end.counter,
			Source:    stateByPair[end.pair].Source.String(),
			QueuePair: fmt.Sprintf("type %s, gid_index %d", suggested.Type, suggested.GIDIndex),
			Sent:      posted.Completed,
			Counted:   v.Packets,
			Rejected:  betterSources(stateByPair[end.pair]),
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

// suggest returns the type and the GID index of the queue pairs: those of the device, and what the caller has chosen.
func (o Options) suggest() dataplane.QueuePair {
	q := dataplane.QueuePair{Type: dataplane.RC}
	if o.Suggest != nil {
		if suggested, ok := o.Suggest(o.RDMA, o.Device); ok {
			q = suggested
		}
	}
	if o.GIDIndex != nil {
		q.GIDIndex = *o.GIDIndex
	}
	return q
}

// betterSources returns the reason against the device's own counters if ibv_poll_cq counts. The other sources are of
// mlx5: the reason against them is the same on every device of another driver.
func betterSources(q dataplane.QueuePairState) (reasons []string) {
	if len(q.Source.Devices) != 1 || q.Source.Devices[0].Mode != dataplane.Mode(dataplane.SourcePollCQ) {
		return nil
	}
	for _, r := range q.Rejected {
		if r.Backend == string(dataplane.SourceCompCntr) {
			reasons = append(reasons, r.Backend+": "+r.Reason)
		}
	}
	return reasons
}

// pairConfig returns the configuration of an instance with two queue pairs connected with one another.
func (o Options) pairConfig(q dataplane.QueuePair) dataplane.Config {
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
				Type:     q.Type,
				GIDIndex: q.GIDIndex,
				Connect:  far,
				Counters: count(nearSent, dataplane.Send),
			},
			{
				Name:     far,
				Device:   o.Device,
				Type:     q.Type,
				GIDIndex: q.GIDIndex,
				Counters: count(farReceived, dataplane.Recv),
			},
		},
	}
}
