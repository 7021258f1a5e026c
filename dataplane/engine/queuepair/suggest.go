package queuepair

import (
	"errors"
	"fmt"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/probe"
)

// Suggest returns the type and the GID index to configure for queue pairs of a device, on port 1. It asks the device:
// an EFA has no reliable connections, and a GID table of one row.
func Suggest(lib *ibv.Library, device string) (q dataplane.QueuePair, err error) {
	ctx, err := lib.Open(device)
	if err != nil {
		return q, err
	}
	defer func() { err = errors.Join(err, ctx.Close()) }()

	q = dataplane.QueuePair{Device: device, Port: 1}
	if q.GIDIndex, err = suggestGID(ctx, q.Port); err != nil {
		return q, err
	}
	q.Type, err = suggestType(ctx)
	return q, err
}

// suggestGID returns the row of a GID table to use as the own address. Row 0 of RoCE is often the address in RoCE v1,
// and row 1 the same address in RoCE v2, so the first row behind row 0 that has an address is better.
func suggestGID(ctx *ibv.Context, port uint8) (int, error) {
	a, err := ctx.QueryPort(port)
	if err != nil {
		return 0, err
	}
	for i := 1; i < a.GIDTblLen; i++ {
		gid, err := ctx.QueryGID(port, i)
		if err == nil && gid != (ibv.GID{}) {
			return i, nil
		}
	}
	return 0, nil
}

// suggestType returns the first type of which the device makes a queue pair.
func suggestType(ctx *ibv.Context) (t dataplane.QueuePairType, err error) {
	cq, err := ctx.CreateCQ(ibv.CQOptions{CQE: 2})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, cq.Close()) }()
	pd, err := ctx.AllocPD()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, pd.Close()) }()
	return firstType(pd, cq)
}

// firstType is suggestType on objects of the caller. One of RDMA operations comes before one of datagrams alone.
func firstType(pd *ibv.PD, cq *ibv.CQ) (dataplane.QueuePairType, error) {
	var errs []error
	for _, t := range []dataplane.QueuePairType{dataplane.RC, dataplane.SRD, dataplane.UD} {
		qp, err := pd.CreateQP(ibv.QPOptions{
			Type:   qpType(t),
			SendCQ: cq,
			RecvCQ: cq,
			Cap:    ibv.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
		})
		if err == nil {
			return t, qp.Close()
		}
		errs = append(errs, fmt.Errorf("type %s: %w", t, err))
	}
	return "", errors.Join(errs...)
}

// refusedType adds to an error of ibv_create_qp the type that the device has, if the device lacks the configured one.
func (e *endpoint) refusedType(err error) error {
	if !errors.Is(err, probe.ErrNotSupported) {
		return err
	}
	has, none := firstType(e.pd, e.cq)
	if none != nil || has == e.cfg.Type {
		return err
	}
	return fmt.Errorf("%w: %w", &probe.UnsupportedError{
		Feature: "a queue pair of type " + string(e.cfg.Type),
		Object:  e.cfg.Device,
		Reason:  "the device has queue pairs of type " + string(has),
		Fix:     "set `type: " + string(has) + "` of the queue pair in the configuration",
	}, err)
}
