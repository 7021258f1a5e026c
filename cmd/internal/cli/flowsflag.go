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

// flowsFlag names a set of flows: of a file, of the command line, or of both in that order; or else of the running
// instance.
type flowsFlag struct {
	controlFlag
	Config string   `short:"c" help:"The flows of this configuration file. Without --config and --flow: those of the running instance." placeholder:"FILE"`
	Flow   []string `help:"A flow, as of run; behind those of --config. May be repeated." sep:"none" placeholder:"NAME: MATCH"`
}

// flows returns the flows in the order in which they win among those of one priority. If ordered is false, an instance
// of an earlier version did not tell that order, and a message has said so.
func (f flowsFlag) flows(env *Env) (flows []flow.Flow, ordered bool, err error) {
	if f.Config == "" && len(f.Flow) == 0 {
		var placements []dataplane.Placement
		err := f.with(env, func(ctx context.Context, svc dataplane.Service) (err error) {
			placements, err = svc.Placements(ctx)
			return err
		})
		if errors.Is(err, dataplane.ErrUnavailable) {
			err = withHint(err, "--config FILE or --flow 'NAME: MATCH' names flows without an instance")
		}
		flows, ordered = inOrder(env, placements)
		return flows, ordered, err
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

// inOrder returns the flows that the running instance counts, in the order in which they win there. It says what the
// caller cannot rely on.
func inOrder(env *Env, placements []dataplane.Placement) (flows []flow.Flow, ordered bool) {
	slices.SortStableFunc(placements, func(a, b dataplane.Placement) int { return cmp.Compare(a.Order, b.Order) })
	ordered = true
	refused := 0
	for _, p := range placements {
		if p.Source.Backend == "" {
			refused++
			continue
		}
		flows = append(flows, p.Flow)
		ordered = ordered && p.Order != 0
	}
	if refused > 0 {
		fmt.Fprintf(env.Stderr, "flowtally: without %s that the instance does not count: flowtally flows list shows why\n", format.Plural(uint64(refused), "flow", "flows"))
	}
	if !ordered {
		fmt.Fprintln(env.Stderr, "flowtally: the instance is of an earlier version and does not tell the order of its flows: of one priority, the first by name wins here")
	}
	return flows, ordered
}

// parseFlows reads flows as NAME: MATCH or NAME=MATCH.
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

// cutFlow cuts at the first "=" or ": ". A name may hold a colon, and is followed by no blank.
func cutFlow(s string) (name, match string, ok bool) {
	if name, match, ok = strings.Cut(s, "="); ok && !strings.Contains(name, ": ") {
		return strings.TrimSpace(name), strings.TrimSpace(match), true
	}
	name, match, ok = strings.Cut(s, ": ")
	return strings.TrimSpace(name), strings.TrimSpace(match), ok
}

// parseMatch is flow.ParseMatch with each mistake marked in the text.
func parseMatch(text string) (flow.Match, error) {
	m, err := flow.ParseMatch(text)
	var mistakes flow.ParseErrors
	if !errors.As(err, &mistakes) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
		return m, err
	}
	marks := []rune(strings.Repeat(" ", len([]rune(text))+1))
	for _, e := range mistakes {
		marks[len([]rune(text[:min(e.Offset, len(text))]))] = '^'
	}
	return m, fmt.Errorf("%w\n  %s\n  %s", err, text, strings.TrimRight(string(marks), " "))
}
