package cli

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/spelling"
)

// warningJSON describes a part of the configuration that run accepts although it is probably a mistake.
type warningJSON struct {
	Object     string `json:"object"`
	Text       string `json:"text"`
	Suggestion string `json:"suggestion"`
}

// configWarnings returns the warnings of each kind.
func configWarnings(cfg dataplane.Config) [][]warningJSON {
	return [][]warningJSON{
		unguardedFlows(cfg),
		hiddenFlows(cfg),
		lowLimits(cfg.Flows, cfg.QueuePairs, cfg.Mirror),
		missingInterfaces(cfg),
		missingOnHost(cfg),
		stackedInterfaces(cfg),
	}
}

// mostWarnings bounds the warnings of one kind that are printed: each flow may have one.
const mostWarnings = 20

// printWarnings prints the first warnings of each kind.
func printWarnings(w io.Writer, kinds [][]warningJSON) {
	for _, list := range kinds {
		for _, one := range list[:min(len(list), mostWarnings)] {
			fmt.Fprintf(w, "flowtally: warning: %s: %s\n  = %s\n", one.Object, one.Text, one.Suggestion)
		}
		if more := len(list) - mostWarnings; more > 0 {
			fmt.Fprintf(w, "flowtally: %s of this kind: -o json shows all\n", format.Plural(uint64(more), "more warning", "more warnings"))
		}
	}
}

// unguardedFlows names the drop flows that a packet can evade.
func unguardedFlows(cfg dataplane.Config) (out []warningJSON) {
	for _, f := range flow.Unguarded(cfg.Flows) {
		out = append(out, warningJSON{
			Object:     fmt.Sprintf("flow %q", f.Name),
			Text:       "it does not drop packets whose headers are cut off or more than are walked",
			Suggestion: fmt.Sprintf("add a flow with match: incomplete, action: drop, direction: %s", f.Direction),
		})
	}
	return out
}

// mostWinners bounds the flows that are named as the winners over a hidden one.
const mostWinners = 4

// hiddenFlows names the flows that can count no packet, because other flows win over them on all of their packets.
func hiddenFlows(cfg dataplane.Config) (out []warningJSON) {
	winnersByName, err := engine.Hidden(cfg)
	if err != nil {
		return nil // the start reports it
	}

	for _, f := range cfg.Flows {
		winners := winnersByName[f.Name]
		if len(winners) == 0 {
			continue
		}
		winners = winners[:min(len(winners), mostWinners)]
		out = append(out, warningJSON{
			Object:     fmt.Sprintf("flow %q", f.Name),
			Text:       "it counts no packet: each one is counted by a flow that wins over it: " + strings.Join(winners, ", "),
			Suggestion: "give it a lower priority number than the other flow, put it before that flow, or remove it",
		})
	}
	return out
}

// lowLimits names the limits of the mirror that the configuration itself exceeds.
func lowLimits(flows []flow.Flow, pairs []dataplane.QueuePair, m dataplane.MirrorConfig) (out []warningJSON) {
	var counters, latency int
	for _, f := range flows {
		if f.Latency {
			latency++
		} else {
			counters++
		}
	}
	for _, q := range pairs {
		counters += len(q.Counters)
	}

	check := func(name string, limit, need int) {
		if limit > 0 && need > limit {
			out = append(out, warningJSON{
				Object:     name,
				Text:       fmt.Sprintf("the limit is %d, the configuration has %d", limit, need),
				Suggestion: "raise it, or write 0 for no limit",
			})
		}
	}
	check("mirror.counters", m.Counters, counters)
	check("mirror.latency_counters", m.LatencyCounters, latency)
	return out
}

// missingInterfaces names the interfaces of a configuration that this host lacks now. The configuration may be for
// another host, or for later.
func missingInterfaces(cfg dataplane.Config) (out []warningJSON) {
	links, err := net.Interfaces()
	if err != nil || cfg.Backend == "sim" {
		return nil
	}
	names := make([]string, len(links))
	for i, link := range links {
		names[i] = link.Name
	}

	for _, i := range cfg.Interfaces {
		if i.Optional || slices.ContainsFunc(names, i.Matches) {
			continue
		}
		w := warningJSON{
			Object:     fmt.Sprintf("interface %s", i.Name),
			Text:       "it is not on this host",
			Suggestion: "there are: " + strings.Join(names[:min(len(names), 16)], ", "),
		}
		if i.IsPattern() {
			w.Text = "no interface of this host matches the pattern"
		} else if near := spelling.Nearest(i.Name, names); near != "" {
			w.Suggestion = fmt.Sprintf("did you mean %q?", near)
		}
		out = append(out, w)
	}
	return out
}

// missingOnHost names the groups and the processor for which a start on this host is refused.
func missingOnHost(cfg dataplane.Config) (out []warningJSON) {
	err := engine.CheckHost(cfg)
	if err == nil {
		return nil
	}

	for line := range strings.Lines(err.Error()) { // errors.Join has one a line
		object, text, _ := strings.Cut(strings.TrimSpace(line), ": ")
		out = append(out, warningJSON{object, text, "a start on this host is refused"})
	}
	return out
}

// stackedInterfaces names the interfaces of this host that see the packets of another configured interface again.
func stackedInterfaces(cfg dataplane.Config) (out []warningJSON) {
	if cfg.Backend == "sim" {
		return nil // nothing counts on this host
	}
	stacked, err := engine.Stacked(cfg)
	if err != nil {
		return nil // this host does not list its links
	}

	for _, c := range stacked {
		out = append(out, warningJSON{Object: "interface " + c.Object, Text: c.Text, Suggestion: c.Fix})
	}
	return out
}
