package export

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/flowtally/flowtally/dataplane"
)

// conditions caches the conditions of the instance. A goroutine of its own reads them over the control socket, because
// an instance may hang, and scrapes must not wait for it.
type conditions struct {
	ask func(context.Context) ([]dataplane.Condition, error) // nil: not exported
	log *slog.Logger

	mu    sync.Mutex
	asked bool // at least once: list and err are set
	err   error
	list  []dataplane.Condition
}

const (
	conditionsPeriod  = 5 * time.Second
	conditionsTimeout = 3 * time.Second
)

// watch reads the conditions until ctx ends.
func (c *conditions) watch(ctx context.Context) {
	if c.ask == nil {
		return
	}
	tick := time.NewTicker(conditionsPeriod)
	defer tick.Stop()
	complaint := "" // the last logged error, so that each one is logged once
	for {
		err := c.read(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err != nil && err.Error() != complaint:
			complaint = err.Error()
			c.log.Warn("the conditions cannot be read: none is exported until they can", "err", err)
		case err == nil && complaint != "":
			complaint = ""
			c.log.Info("the conditions are read")
		}

		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// read reads the conditions once. If ctx ends meanwhile, the cache stays as it was.
func (c *conditions) read(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, conditionsTimeout)
	defer cancel()
	list, err := c.ask(call)
	if ctx.Err() != nil {
		return ctx.Err()
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = true
	c.err = err
	c.list = list
	return err
}

// severities maps each severity to the value of the label severity.
var severities = map[dataplane.Severity]string{dataplane.Low: "low", dataplane.Medium: "medium", dataplane.High: "high"}

func (c *conditions) render(g *gauges) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.asked {
		return
	}
	g.gauge("flowtally_conditions_up", "1 if the conditions of the instance can be read over its control socket.", oneIf(c.err == nil))
	if c.err != nil {
		return
	}

	seen := make(map[[2]string]bool, len(c.list)) // Prometheus refuses a scrape with one series twice
	for _, d := range c.list {
		id := [2]string{string(d.Code), d.Object}
		if seen[id] {
			continue
		}
		seen[id] = true
		g.gauge("flowtally_condition", "A state of the instance that needs attention; docs/conditions.md lists the codes. Always 1.", 1,
			label{"code", text(string(d.Code))}, label{"object", text(d.Object)}, label{"severity", severities[d.Severity]})
	}
}
