package engine

import (
	"errors"
	"fmt"
	"strings"

	"github.com/flowtally/flowtally/dataplane/probe"
	"github.com/flowtally/flowtally/ibv"
)

// FeatureCompletions asks for the sources from which completions of a device's queue pairs
// can be counted. Its answer says which there are, best first.
const FeatureCompletions = "completions of queue pairs"

// probeCompletions makes what a source needs, and unmakes it.
func probeCompletions(lib *ibv.Library, device string) probe.Result {
	r, err := completionSources(lib, device)
	if err != nil {
		return probe.Ask(FeatureCompletions, device, err)
	}
	return probe.Result{Feature: FeatureCompletions, Object: device, Answer: probe.Yes, Reason: "counted by " + r}
}

func completionSources(lib *ibv.Library, device string) (_ string, err error) {
	ctx, err := lib.Open(device)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, ctx.Close()) }()
	var sources []string
	if caps, err := ctx.QueryCompCntrCaps(); err == nil {
		sources = append(sources, fmt.Sprintf("%s (%d counters to %d, of %s)",
			sourceCompCntr, caps.MaxCounters, caps.MaxValue, strings.ToLower(strings.ReplaceAll(caps.SupportedQPAttachOps.String(), "|", ", "))))
	}
	cq, err := ctx.CreateCQ(ibv.CQOptions{CQE: 1})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, cq.Close()) }()
	if _, err := cq.MLX5Ring(); err == nil {
		sources = append(sources, sourceRing)
	}
	return strings.Join(append(sources, sourcePoll), ", "), nil
}
