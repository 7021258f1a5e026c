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

// unguardedFlows names the flows that are to drop packets, and that a packet can evade.
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

// hiddenFlows names the flows that can count no packet, since other flows win over them on all of their packets.
func hiddenFlows(cfg dataplane.Config) (out []warningJSON) {
	hidden, err := engine.Hidden(cfg)
	if err != nil {
		return nil // the start reports it
	}
	for _, f := range cfg.Flows {
		if by := hidden[f.Name]; len(by) > 0 {
			by = by[:min(len(by), 4)]
			out = append(out, warningJSON{
				Object:     fmt.Sprintf("flow %q", f.Name),
				Text:       "it counts no packet: each one is counted by a flow that wins over it: " + strings.Join(by, ", "),
				Suggestion: "give it a lower priority number than the other flow, put it before that flow, or remove it",
			})
		}
	}
	return out
}

// lowLimits names the limits of the mirror that are below the number of counters of the
// configuration itself.
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
	for _, l := range []struct {
		name        string
		limit, need int
	}{{"mirror.counters", m.Counters, counters}, {"mirror.latency_counters", m.LatencyCounters, latency}} {
		if l.limit > 0 && l.need > l.limit {
			out = append(out, warningJSON{l.name, fmt.Sprintf("the limit is %d, the configuration has %d", l.limit, l.need), "raise it, or write 0 for no limit"})
		}
	}
	return out
}

// missingInterfaces names the interfaces of a configuration that are not on this host now: it may
// be meant for another host, or for later.
func missingInterfaces(cfg dataplane.Config) (out []warningJSON) {
	there, err := net.Interfaces()
	if err != nil || cfg.Backend == "sim" {
		return nil
	}
	names := make([]string, len(there))
	for i, ifi := range there {
		names[i] = ifi.Name
	}
	for _, i := range cfg.Interfaces {
		if i.Optional || slices.ContainsFunc(names, i.Matches) {
			continue
		}
		w := warningJSON{fmt.Sprintf("interface %s", i.Name), "it is not on this host", "there are: " + strings.Join(names[:min(len(names), 16)], ", ")}
		if i.IsPattern() {
			w.Text = "no interface of this host matches the pattern"
		} else if near := flow.Nearest(i.Name, names); near != "" {
			w.Suggestion = fmt.Sprintf("did you mean %q?", near)
		}
		out = append(out, w)
	}
	return out
}

// missingOnHost names the groups and the processor that a start on this host will refuse.
func missingOnHost(cfg dataplane.Config) (out []warningJSON) {
	err := engine.CheckHost(cfg)
	if err == nil {
		return nil
	}
	for line := range strings.Lines(err.Error()) {
		object, text, _ := strings.Cut(strings.TrimSpace(line), ": ")
		out = append(out, warningJSON{object, text, "a start on this host is refused"})
	}
	return out
}

// stackedInterfaces warns of interfaces of this host that will count the packets of another configured interface again.
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
