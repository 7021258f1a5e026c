package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/control"
)

// Interfaces implements dataplane.Service.
func (e *Engine) Interfaces(ctx context.Context) ([]dataplane.Interface, error) {
	if err := e.lock(ctx, "listing the interfaces"); err != nil {
		return nil, err
	}
	defer e.ctl.Unlock()
	return slices.Clone(e.cfg.Interfaces), nil
}

// SetInterfaces implements dataplane.Service.
func (e *Engine) SetInterfaces(ctx context.Context, list []dataplane.Interface) error {
	const doing = "setting the interfaces"
	list = slices.Clone(list)
	return e.call(ctx, doing, "no interface changes", func(ctx context.Context, commit *control.Commit) error {
		if err := e.allowInterfaces(list); err != nil {
			return fmt.Errorf("%s: %w", doing, err)
		}
		if err := commit.Keep(ctx); err != nil {
			return err
		}
		for _, b := range e.backends {
			if s, ok := b.(interface {
				SetInterfaces([]dataplane.Interface) error
			}); ok {
				if err := s.SetInterfaces(list); err != nil {
					return fmt.Errorf("%s: backend %s: %w", doing, b.Name(), err)
				}
			}
		}
		e.cfg.Interfaces = list
		return nil
	})
}

// allowInterfaces checks a list against the rules and the flows.
func (e *Engine) allowInterfaces(list []dataplane.Interface) error {
	switch {
	case len(e.cfg.Interfaces) == 0 && len(list) > 0:
		return fmt.Errorf("%w: the instance was started without an interface; start it with a configuration that has interfaces", dataplane.ErrInvalid)
	case len(list) == 0 && len(e.cfg.Interfaces) > 0:
		return fmt.Errorf("%w: the list is empty; name at least one interface", dataplane.ErrInvalid)
	}
	errs := []error{dataplane.ValidateInterfaces(list)}
	for _, c := range e.flows {
		if _, counts := c.backend.(backend.SoftwareBackend); counts || c.offload != nil {
			errs = append(errs, dataplane.ReachesInterface(list, c.Flow))
		}
	}
	return errors.Join(errs...)
}
