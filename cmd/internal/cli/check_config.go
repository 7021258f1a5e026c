package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/cost"
	"github.com/flowtally/flowtally/cmd/internal/explain"
	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/configs"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
)

// checkConfig verifies a configuration and names every mistake. In JSON the mistakes are part of the output. Otherwise
// they are the error with which flowtally run would end.
func (c *checkCmd) checkConfig(env *Env) error {
	cfg, notes, plan, problems, err := c.verify(env)
	if len(problems) > 0 && c.json() {
		if err := printConfigJSON(env.Stdout, c.Config, problems, nil, nil); err != nil {
			return err
		}
		return exitError(exitUsage)
	}
	if err != nil {
		return err
	}

	warnings := append(configWarnings(cfg), noteWarnings(notes))
	if c.json() {
		return printConfigJSON(env.Stdout, c.Config, nil, slices.Concat(warnings...), costOf(cfg, plan))
	}
	printWarnings(env.Stderr, warnings)
	if _, err := fmt.Fprintf(env.Stdout, "%s: ok: %s\n", c.Config, countedBy(cfg)); err != nil {
		return err
	}
	if plan.Rules == 0 {
		return nil
	}
	_, err = fmt.Fprintf(env.Stdout, "classifier: %s\n", explain.Cost(engine.InXDP(cfg), plan))
	return err
}

// verify reads the configuration and plans its classifier. An error in the configuration comes with its list of problems;
// problems is empty for an unreadable file.
func (c *checkCmd) verify(env *Env) (cfg dataplane.Config, notes []configs.Note, plan *xdp.Plan, problems []configs.Problem, err error) {
	if cfg, notes, err = loadNoted(env.Context, c.Config); err != nil {
		if mistakes := (*configs.Error)(nil); errors.As(err, &mistakes) {
			problems = mistakes.Problems
		}
		return cfg, nil, nil, problems, &usageError{err}
	}

	if err = engine.Check(cfg); err == nil {
		// Planning a hundred thousand ranges takes minutes, so a signal must end it.
		plan, err = await(env.Context, func() (*xdp.Plan, error) { return engine.Plan(cfg) })
	}
	switch {
	case err == nil:
		return cfg, notes, plan, nil, nil
	case errors.Is(err, env.Context.Err()):
		return cfg, nil, nil, nil, fmt.Errorf("%s: computing the classifier: %w", c.Config, err)
	}
	problems = []configs.Problem{{Msg: err.Error(), Suggestion: hint(err)}}
	return cfg, nil, nil, problems, &usageError{fmt.Errorf("%s: %w", c.Config, err)}
}

// countedBy says how much a configuration counts, for example "2 queue pairs, 3 flows on 1 interface".
func countedBy(cfg dataplane.Config) string {
	var counted []string
	if n := len(cfg.QueuePairs); n > 0 {
		counted = append(counted, format.Plural(uint64(n), "queue pair", "queue pairs"))
	}
	if len(counted) == 0 || len(cfg.Flows)+len(cfg.Interfaces) > 0 {
		flows := format.Plural(uint64(len(cfg.Flows)), "flow", "flows")
		counted = append(counted, flows+" on "+format.Plural(uint64(len(cfg.Interfaces)), "interface", "interfaces"))
	}
	return strings.Join(counted, ", ")
}

// costOf returns the classifier and the cost of a configuration, or nil if XDP can count none of its flows.
func costOf(cfg dataplane.Config, p *xdp.Plan) *costJSON {
	if p.Rules == 0 {
		return nil
	}
	return &costJSON{
		Flows:  engine.InXDP(cfg),
		Rules:  p.Rules,
		Hashed: len(p.Hashed),
		Trees:  p.Trees[0] + p.Trees[1] + p.Trees[2],
		NS:     math.Round(p.NS),
		Cost:   cost.JSON(&p.Cost),
	}
}

// checkedConfigJSON is the output of check --config -o json. Programs read it: fields are only added.
type checkedConfigJSON struct {
	Schema   int           `json:"schema"`
	Path     string        `json:"path"`
	OK       bool          `json:"ok"`
	Problems []mistakeJSON `json:"problems"`
	Warnings []warningJSON `json:"warnings"`
	// Classifier is the cost class; null: XDP can count no flow, or there are problems.
	Classifier *costJSON `json:"classifier"`
}

// costJSON is the classifier of a configuration, and its cost.
type costJSON struct {
	Flows  int     `json:"flows"` // that XDP may count
	Rules  int     `json:"rules"`
	Hashed int     `json:"hashed"` // masks in the hash table
	Trees  int     `json:"trees"`
	NS     float64 `json:"ns"` // of a packet above an empty program, an estimate

	Cost *cost.Fields `json:"cost"` // of a packet: typical, and at worst
}

// mistakeJSON is one mistake in the JSON of check --config; line and column
// count from 1 and are 0 for a mistake of the file as a whole.
type mistakeJSON struct {
	Line       int    `json:"line"`
	Column     int    `json:"column"`
	Text       string `json:"text"`
	Suggestion string `json:"suggestion"`
	File       string `json:"file"` // the configuration, or a file that it includes
}

func printConfigJSON(w io.Writer, path string, problems []configs.Problem, warnings []warningJSON, cost *costJSON) error {
	out := checkedConfigJSON{
		Schema:     1,
		Path:       path,
		OK:         len(problems) == 0,
		Problems:   make([]mistakeJSON, len(problems)),
		Warnings:   append([]warningJSON{}, warnings...), // [], not null
		Classifier: cost,
	}
	for i, p := range problems {
		out.Problems[i] = mistakeJSON{p.Line, p.Col, p.Msg, p.Suggestion, cmp.Or(p.File, path)}
	}
	return format.JSON(w, out)
}

// checkedMirrorJSON is the output of check -o json. Programs read it: fields are only added.
type checkedMirrorJSON struct {
	Schema   int           `json:"schema"`
	Path     string        `json:"path"`
	OK       bool          `json:"ok"`
	Problems []problemJSON `json:"problems"`
}
