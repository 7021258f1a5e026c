package cli

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/configs"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/spelling"
)

// warningJSON is a warning about a part of the configuration: valid, but probably a mistake.
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

// noteWarnings returns the notes of the decoder.
func noteWarnings(notes []configs.Note) (out []warningJSON) {
	for _, n := range notes {
		out = append(out, warningJSON(n))
	}
	return out
}

// mostWarnings is the most warnings of a kind to print. Each of thousands of flows may have one.
const mostWarnings = 20

// printWarnings prints the first warnings of each kind.
func printWarnings(w io.Writer, kinds [][]warningJSON) {
	for _, list := range kinds {
		for _, one := range list[:min(len(list), mostWarnings)] {
			text := fmt.Sprintf("flowtally: warning: %s: %s\n  = %s\n", one.Object, one.Text, one.Suggestion)
			io.WriteString(w, format.PrintableLines(text)) // a path has any bytes
		}
		if more := len(list) - mostWarnings; more > 0 {
			fmt.Fprintf(w, "flowtally: %s of this kind: -o json shows all\n", format.Plural(uint64(more), "more warning", "more warnings"))
		}
	}
}

// unguardedFlows warns about drop flows that an attacker's packet can evade.
func unguardedFlows(cfg dataplane.Config) (out []warningJSON) {
	for _, e := range flow.Unguarded(cfg.Flows) {
		text := "it does not drop packets whose headers are cut off or more than are walked"
		if e.Guard.Inner() != nil {
			text = "it does not drop packets whose headers inside the tunnel are cut off or more than are walked"
		}
		out = append(out, warningJSON{
			Object:     fmt.Sprintf("flow %q", e.Flow.Name),
			Text:       text,
			Suggestion: fmt.Sprintf("add a flow with match: %s, action: drop, direction: %s", e.Guard, e.Flow.Direction),
		})
	}
	return out
}

// mostWinners is the most flows to name as the winners over a hidden flow.
const mostWinners = 4

// hiddenFlows warns about flows that cannot count any packet, because other flows win all of theirs.
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

// lowLimits warns about limits of the mirror exceeded by the configuration itself.
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

// missingInterfaces warns about configured interfaces missing on this host. That may be right: the configuration may be
// for another host, or the interface may appear later.
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

// missingOnHost warns about groups and features of the processor without which a start on this host will be refused.
func missingOnHost(cfg dataplane.Config) (out []warningJSON) {
	err := engine.CheckHost(cfg)
	if err == nil {
		return nil
	}

	for line := range strings.Lines(err.Error()) { // errors.Join separates errors by newlines
		object, text, _ := strings.Cut(strings.TrimSpace(line), ": ")
		out = append(out, warningJSON{object, text, "a start on this host is refused"})
	}
	return out
}

// stackedInterfaces warns about interfaces that see the packets of another configured interface again, such as a bond
// and its members: each packet would count twice.
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
