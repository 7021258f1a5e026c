package engine

import (
	"errors"
	"strings"

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
	return probe.Result{Feature: FeatureCompletions, Object: device, Answer: probe.Yes, Reason: "counted by " + strings.Join(sources, ", ")}
}

func completionSources(lib *ibv.Library, device string) (sources []string, err error) {
	ctx, err := lib.Open(device)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ctx.Close()) }()
	if _, err := ctx.QueryCompCntrCaps(); err == nil {
		sources = append(sources, sourceCompCntr)
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
