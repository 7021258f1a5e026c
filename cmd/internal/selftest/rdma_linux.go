package selftest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/shm"
)

// testRDMA sends messages between two queue pairs of a device, and compares the completions of both.
func (o Options) testRDMA(ctx context.Context, rep *Report) (err error) {
	instance := o.Instance + "-rdma"
	cfg := dataplane.Config{
		Instance: instance, RDMA: o.RDMA,
		QueuePairs: []dataplane.QueuePair{
			{Name: "near", Device: o.Device, GIDIndex: o.GIDIndex, Connect: "far", Counters: []dataplane.CompletionCounter{{Name: "near-sent", Operations: []dataplane.Operation{dataplane.Send}}}},
			{Name: "far", Device: o.Device, GIDIndex: o.GIDIndex, Counters: []dataplane.CompletionCounter{{Name: "far-received", Operations: []dataplane.Operation{dataplane.Recv}}}},
		},
	}
	svc, err := o.Start(ctx, cfg)
	if err != nil {
		rep.add(notTested("rdma", err.Error()))
		if errors.Is(err, dataplane.ErrInUse) || errors.Is(err, dataplane.ErrPermission) {
			return nil // the mirror is of an instance that runs, or of another user
		}
		return sweepMirror(instance)
	}
	defer func() { err = errors.Join(err, svc.Close(), sweepMirror(instance)) }()
	info, err := svc.Info(ctx)
	if err != nil {
		return fmt.Errorf("reading the identity of the instance: %w", err)
	}
	m, err := shm.OpenReader(info.Mirror)
	if err != nil {
		return fmt.Errorf("opening the mirror: %w", err)
	}
	defer m.Close()
	posted, err := svc.QueuePairs().Post(ctx, "near", dataplane.Send, o.Count)
	if err != nil {
		rep.add(notTested("rdma", fmt.Sprintf("posting %d messages on %s: %v", o.Count, o.Device, err)))
		return ctx.Err()
	}
	pairs, err := svc.QueuePairs().List(ctx)
	if err != nil {
		return fmt.Errorf("listing the queue pairs: %w", err)
	}
	for _, name := range []string{"near-sent", "far-received"} {
		v, err := o.settled(ctx, m, name)
		if err != nil {
			return err
		}
		pair := slices.IndexFunc(pairs, func(q dataplane.QueuePairState) bool { return strings.HasPrefix(name, q.Name+"-") })
		p := Part{Name: "rdma " + name, Source: pairs[pair].Source.String(), Sent: posted.Completed, Counted: v.Packets}
		p.judge()
		if errs := posted.Errors + v.Bytes; errs > 0 {
			p.Result, p.Reason = Differs, fmt.Sprintf("%d completions in error", errs)
		}
		rep.add(p)
	}
	return nil
}
