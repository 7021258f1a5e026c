package sim

import (
	"context"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

var _ backend.Alterer = (*Backend)(nil)

// Alter implements backend.Alterer.
func (s *Backend) Alter(ctx context.Context, c backend.Change) ([]backend.Installed, func(keep bool) error, error) {
	was, now := c.Was, c.Now // the engine adds and removes others by themselves
	old := make([]uint32, len(was))
	s.mu.Lock()
	for i, f := range was {
		old[i] = s.ids[f.Name]
	}
	s.mu.Unlock()
	in, err := s.Install(ctx, now)
	if err != nil {
		return nil, nil, err
	}
	put := func(drop, names []backend.Placed, id func(i int) uint32) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, f := range drop {
			delete(s.ids, f.Name)
		}
		for i, f := range names {
			s.ids[f.Name] = id(i)
		}
	}
	for i := range in {
		if was[i].Flow.Identity() == now[i].Flow.Identity() {
			in[i].ID = old[i]
		}
	}
	put(was, now, func(i int) uint32 { return in[i].ID })
	return in, func(keep bool) error {
		if !keep {
			put(now, was, func(i int) uint32 { return old[i] })
		}
		return nil
	}, nil
}
