package engine

import (
	"errors"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// choices knows which open backends a flow may go to. Engine.ctl guards it.
type choices struct {
	all      []backend.Backend
	given    bool             // a test has injected all: a flow that names no backend may go to each of them
	absent   map[string]error // why a backend that the configuration names has nothing to count with
	standard flow.Backend     // the backend of flows that name none
	byName   map[flow.Backend]*choice
}

// choice is the open backends that a flow may go to, best first, and the refusals of the others. All flows of one name
// share it and do not write to it.
type choice struct {
	open    []backend.Backend
	refused []dataplane.Rejection
}

// with returns why no backend counts a flow if the first open ones refuse it with errs.
func (c *choice) with(errs []error) []dataplane.Rejection {
	all := c.refused
	for i, err := range errs {
		all = append(all, dataplane.Rejection{Backend: c.open[i].Name(), Reason: err.Error()})
	}
	return all
}

// of returns the backends that a flow may go to. Code that changes absent clears byName.
func (s *choices) of(f flow.Flow) *choice {
	c := s.byName[f.Backend]
	if c == nil {
		open, refused := s.find(f.Backend)
		c = &choice{slices.Clip(open), slices.Clip(refused)}
		s.byName[f.Backend] = c
	}
	return c
}

// find returns the choice of the flows that name a backend by word; "" is for flows that name none.
func (s *choices) find(word flow.Backend) (open []backend.Backend, refused []dataplane.Rejection) {
	if word == "" {
		if s.given {
			return s.all, nil
		}
		word = s.standard
	}
	for _, name := range candidates(word) {
		if i := slices.IndexFunc(s.all, func(b backend.Backend) bool { return b.Name() == name }); i >= 0 && s.absent[name] == nil {
			open = append(open, s.all[i])
			continue
		}
		reason := "the instance was started without it; start it with a configuration that names backend " + name
		if err := s.absent[name]; err != nil {
			reason = strings.TrimPrefix(backend.ReasonOf(err), "backend "+name+": ")
			if noVerbs := (*backend.NoVerbsError)(nil); errors.As(err, &noVerbs) {
				reason = dataplane.NoRDMADevice
			}
		}
		refused = append(refused, dataplane.Rejection{Backend: name, Reason: reason, Always: true})
	}
	if len(open) == 0 && word == "auto" {
		// the backends of an instance that only simulates
		open = slices.DeleteFunc(slices.Clone(s.all), func(b backend.Backend) bool { return s.absent[b.Name()] != nil })
	}
	return open, refused
}
