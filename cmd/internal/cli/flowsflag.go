package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// flowsFlag names a set of flows: those of a file, then those of the command line. Without either it is the flows of the
// running instance.
type flowsFlag struct {
	controlFlag
	Config string   `short:"c" help:"The flows of this configuration file. Without --config and --flow: those of the running instance." placeholder:"FILE"`
	Flow   []string `help:"A flow, as of run; behind those of --config. May be repeated." sep:"none" placeholder:"NAME: MATCH"`
}

// flows returns the flows by precedence: among flows of one priority, the first one wins. ordered is false if the
// instance is too old to tell the precedence. Then a message has been printed, and the flows are in order of name.
func (f flowsFlag) flows(env *Env) (flows []flow.Flow, ordered bool, err error) {
	if f.Config == "" && len(f.Flow) == 0 {
		return f.running(env)
	}

	if f.Config != "" {
		cfg, err := loadConfig(env.Context, f.Config)
		if err != nil {
			return nil, false, &usageError{err}
		}
		flows = cfg.Flows
	}
	more, err := parseFlows(f.Flow)
	if err != nil {
		return nil, false, &usageError{err}
	}
	flows = append(flows, more...)

	seen := make(map[string]bool)
	for _, fl := range flows {
		if seen[fl.Name] {
			return nil, false, usagef("flow %q: the name stands twice", fl.Name)
		}
		seen[fl.Name] = true
	}
	return flows, true, nil
}

// running returns the flows of the running instance.
func (f flowsFlag) running(env *Env) (flows []flow.Flow, ordered bool, err error) {
	var placements []dataplane.Placement
	err = f.with(env, func(ctx context.Context, svc dataplane.Service) (err error) {
		placements, err = svc.Placements(ctx)
		return err
	})
	if errors.Is(err, dataplane.ErrUnavailable) {
		err = withHint(err, "--config FILE or --flow 'NAME: MATCH' names flows without an instance")
	}
	flows, ordered = inOrder(env, placements)
	return flows, ordered, err
}

// inOrder returns the flows counted by the instance, by precedence. It prints a message if some flows are not counted,
// and if the instance does not tell the precedence.
func inOrder(env *Env, placements []dataplane.Placement) (flows []flow.Flow, ordered bool) {
	slices.SortStableFunc(placements, func(a, b dataplane.Placement) int { return cmp.Compare(a.Order, b.Order) })

	ordered = true
	uncounted := 0
	for _, p := range placements {
		if p.Source.Backend == "" {
			uncounted++
			continue
		}
		flows = append(flows, p.Flow)
		ordered = ordered && p.Order != 0
	}

	if uncounted > 0 {
		fmt.Fprintf(env.Stderr, "flowtally: without %s that the instance does not count: flowtally flows list shows why\n", format.Plural(uint64(uncounted), "flow", "flows"))
	}
	if !ordered {
		fmt.Fprintln(env.Stderr, "flowtally: the instance is of an earlier version and does not tell the order of its flows: of one priority, the first by name wins here")
	}
	return flows, ordered
}

// parseFlows parses flows in the form NAME: MATCH or NAME=MATCH. The error has every mistake in them.
func parseFlows(texts []string) (flows []flow.Flow, err error) {
	var problems []error
	for _, s := range texts {
		name, text, ok := cutFlow(s)
		if !ok {
			problems = append(problems, fmt.Errorf("--flow %q: no name; it is NAME: MATCH, such as 'web: tcp dport 443'", s))
			continue
		}

		f := flow.Flow{Name: name}
		if f.Match, err = parseMatch(text); err == nil {
			err = f.Validate()
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("--flow %s: %w", name, err))
		}
		flows = append(flows, f)
	}
	return flows, errors.Join(problems...)
}

// cutFlow cuts at the first "=" or ": ", whichever comes first. A colon needs its blank, because names such as "a:b" have
// colons.
func cutFlow(s string) (name, match string, ok bool) {
	name, match, ok = strings.Cut(s, "=")
	if !ok || strings.Contains(name, ": ") {
		name, match, ok = strings.Cut(s, ": ")
	}
	return strings.TrimSpace(name), strings.TrimSpace(match), ok
}

// parseMatch is flow.ParseMatch with an error that shows the text and a mark below each mistake.
func parseMatch(text string) (flow.Match, error) {
	m, err := flow.ParseMatch(text)
	var mistakes flow.ParseErrors
	if !errors.As(err, &mistakes) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
		return m, err
	}

	// Offsets count bytes, but marks need columns. A missing word at the end has its mark after the last character.
	marks := []rune(strings.Repeat(" ", len([]rune(text))+1))
	for _, e := range mistakes {
		before := text[:min(e.Offset, len(text))]
		marks[len([]rune(before))] = '^'
	}
	return m, fmt.Errorf("%w\n  %s\n  %s", err, text, strings.TrimRight(string(marks), " "))
}
