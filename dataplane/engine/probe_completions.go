package engine

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/flowtally/flowtally/dataplane/probe"
	"github.com/flowtally/flowtally/ibv"
)

// FeatureCompletions asks for the sources from which completions of a device's queue pairs
// can be counted. Its answer says which there are, best first.
const FeatureCompletions = "completions of queue pairs"

// probeCompletions makes what a source needs, and unmakes it.
func probeCompletions(lib *ibv.Library, device string) probe.Result {
	sources, err := completionSources(lib, device)
	if err != nil {
		return probe.Ask(FeatureCompletions, device, err)
	}
	reason := "counted by " + strings.Join(sources, ", ")
	if slices.Contains(sources, sourceRing) { // an mlx5 device, whose firmware knows collapsed queues
		reason += "; not by collapsed_cq, as ibv_create_qp takes no such queue: cq_ring is in its place"
	}
	return probe.Result{Feature: FeatureCompletions, Object: device, Answer: probe.Yes, Reason: reason}
}

func completionSources(lib *ibv.Library, device string) (sources []string, err error) {
	ctx, err := lib.Open(device)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ctx.Close()) }()
	if caps, err := ctx.QueryCompCntrCaps(); err == nil {
		cntrs, err := cntrSources(ctx, caps)
		if err != nil {
			return nil, err
		}
		sources = append(sources, cntrs...)
	}
	cq, err := ctx.CreateCQ(ibv.CQOptions{CQE: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cq.Close()) }()
	if _, err := cq.MLX5Ring(); err == nil {
		sources = append(sources, sourceRing)
	}
	return append(sources, sourcePoll), nil
}

// cntrSources are the two kinds of completion counters, of those the device makes. The memory of
// the first is a mapping here, in the place of a mirror's.
func cntrSources(ctx *ibv.Context, caps ibv.CompCntrCaps) (sources []string, err error) {
	page, err := syscall.Mmap(-1, 0, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping a page for a completion counter: %w", err)
	}
	for _, c := range []struct {
		source   string
		may      error
		external *ibv.CompCntrMemory
	}{
		{sourceExternal, fitForWords(caps.MaxValue), &ibv.CompCntrMemory{Comp: page[:8:8], Err: page[8:16:16]}},
		{sourceCompCntr, nil, nil},
	} {
		if c.may != nil {
			continue
		}
		k, err := ctx.CreateCompCntr(ibv.CompCntrOptions{Type: ibv.CompCntrTypeWRs, External: c.external})
		if err != nil {
			continue
		}
		if err := k.Close(); err != nil {
			return nil, err // the page stays: the device may still write there
		}
		sources = append(sources, c.source)
	}
	return sources, syscall.Munmap(page)
}
