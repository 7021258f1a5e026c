package queuepair

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/probe"
)

// FeatureCompletions is the feature of Probe's result.
const FeatureCompletions = "completions of queue pairs"

// Probe returns the sources that can count the completions of a device's queue pairs, best first. It makes the
// objects that each source needs, and destroys them.
func Probe(lib *ibv.Library, device string) []probe.Result {
	sources, err := Sources(lib, device)
	if err != nil {
		return []probe.Result{probe.Ask(FeatureCompletions, device, err)}
	}
	reason := "counted by " + strings.Join(sources, ", ")
	if slices.Contains(sources, modeRing) { // an mlx5 device, whose firmware can make collapsed queues
		reason += "; not by collapsed_cq, as ibv_create_qp takes no such queue: cq_ring is in its place"
	}
	return []probe.Result{{Feature: FeatureCompletions, Object: device, Answer: probe.Yes, Reason: reason}}
}

// Sources returns the modes in which the completions of a device's queue pairs can be counted, best first.
func Sources(lib *ibv.Library, device string) (modes []string, err error) {
	ctx, err := lib.Open(device)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ctx.Close()) }()
	if caps, err := ctx.QueryCompCntrCaps(); err == nil {
		cntrs, err := counterModes(ctx, caps)
		if err != nil {
			return nil, err
		}
		modes = append(modes, cntrs...)
	}
	cq, err := ctx.CreateCQ(ibv.CQOptions{CQE: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cq.Close()) }()
	if _, err := cq.MLX5Ring(); err == nil {
		modes = append(modes, modeRing)
	}
	return append(modes, modePoll), nil
}

// counterModes returns the kinds of completion counters that the device makes. A mapped page stands in for
// the mirror's device segment.
func counterModes(ctx *ibv.Context, caps ibv.CompCntrCaps) (modes []string, err error) {
	page, err := syscall.Mmap(-1, 0, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping a page for a completion counter: %w", err)
	}
	for _, c := range []struct {
		mode     string
		refusal  error
		external *ibv.CompCntrMemory
	}{
		{modeExternal, fitForMirror(caps.MaxValue), &ibv.CompCntrMemory{Comp: page[:8:8], Err: page[8:16:16]}},
		{modeCompCntr, nil, nil},
	} {
		if c.refusal != nil {
			continue
		}
		k, err := ctx.CreateCompCntr(ibv.CompCntrOptions{Type: ibv.CompCntrTypeWRs, External: c.external})
		if err != nil {
			continue
		}
		if err := k.Close(); err != nil {
			return nil, err // the page stays mapped: the device may still write to it
		}
		modes = append(modes, c.mode)
	}
	return modes, syscall.Munmap(page)
}

// Try makes a queue pair as cfg describes it, with its memory and its completion queue, brings it to INIT and
// destroys it. It returns no error, because Start returns the same error: a trial of a device fails only if a
// verb crashes or hangs.
func Try(lib *ibv.Library, cfg dataplane.QueuePair) {
	ctx, err := lib.Open(cfg.Device)
	if err != nil {
		return
	}
	defer ctx.Close()
	pd, err := ctx.AllocPD()
	if err != nil {
		return
	}
	defer pd.Close()
	if mr, err := pd.AllocMR(os.Getpagesize(), ibv.AccessRemoteWrite|ibv.AccessRemoteRead|ibv.AccessLocalWrite); err == nil {
		defer mr.Close()
	}
	cq, err := ctx.CreateCQ(ibv.CQOptions{CQE: wcBatch})
	if err != nil {
		return
	}
	defer cq.Close()
	_, _ = cq.Poll(make([]ibv.WC, 1))
	qp, err := pd.CreateQP(ibv.QPOptions{
		Type: qpType(cfg.Type), SendCQ: cq, RecvCQ: cq, SignalAll: true,
		Cap: ibv.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	if err != nil {
		return
	}
	defer qp.Close()
	_ = qp.Modify(ibv.QPAttr{State: ibv.QPSInit, PortNum: cfg.Port}, ibv.QPAttrState|ibv.QPAttrPort)
}
