package queuepair

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/probe"
)

// FeatureCompletions is the feature in the result of [Probe].
const FeatureCompletions = "completions of queue pairs"

// Probe reports which sources can count the completions of a device's queue pairs, best first. It tries each source
// by making its objects and destroying them again.
func Probe(lib *ibv.Library, device string) []probe.Result {
	sources, err := Sources(lib, device)
	if err != nil {
		return []probe.Result{probe.Ask(FeatureCompletions, device, err)}
	}

	// The order is auto's, which never chooses a collapsed queue: name that one apart.
	collapsed := slices.Index(sources, modeCollapsed)
	if collapsed >= 0 {
		sources = slices.Delete(sources, collapsed, collapsed+1)
	}
	reason := "counted by " + strings.Join(sources, ", ")
	if collapsed >= 0 {
		reason += "; on request by collapsed_cq"
	}
	if q, err := Suggest(lib, device); err == nil {
		reason += fmt.Sprintf("; configure `type: %s` and `gid_index: %d`", q.Type, q.GIDIndex)
	}
	return []probe.Result{{
		Feature: FeatureCompletions,
		Object:  device,
		Answer:  probe.Yes,
		Reason:  reason,
	}}
}

// Sources returns the modes in which a device's completions can be counted, best first.
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
	modes = append(modes, modePoll)
	if tryCollapsed(ctx) == nil {
		modes = append(modes, modeCollapsed)
	}
	return modes, nil
}

// tryCollapsed makes a queue pair with a collapsed completion queue, and destroys it.
func tryCollapsed(ctx *ibv.Context) (err error) {
	dx, err := ctx.DevX()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dx.Close()) }()
	pd, err := dx.AllocPD()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pd.Close()) }()
	p, err := newCollapsedPair(dx, pd, 1, 1)
	if err != nil {
		return err
	}
	return p.Close()
}

// counterModes returns the modes of completion counters offered by the device. There is no mirror here, so the
// device counts in an anonymous page instead of the device segment.
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
			return nil, err // do not unmap the page: the device may still write to it
		}
		modes = append(modes, c.mode)
	}
	return modes, syscall.Munmap(page)
}
