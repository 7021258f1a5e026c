package sim

import (
	"context"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

var _ backend.Alterer = (*Backend)(nil)

// Alter implements backend.Alterer. It can ignore the flows that come and go: only a SoftwareBackend gets them in a Change.
func (s *Backend) Alter(ctx context.Context, c backend.Change) ([]backend.Installed, func(keep bool) error, error) {
	old := s.idsOf(c.Was)
	in, err := s.Install(ctx, c.Now)
	if err != nil {
		return nil, nil, err
	}

	fresh := make([]uint32, len(in))
	for i := range in {
		if c.Was[i].Flow.Identity() == c.Now[i].Flow.Identity() {
			in[i].ID = old[i] // the count goes on
		}
		fresh[i] = in[i].ID
	}
	s.replace(c.Was, c.Now, fresh)

	end := func(keep bool) error {
		if !keep {
			s.replace(c.Now, c.Was, old)
		}
		return nil
	}
	return in, end, nil
}

// idsOf returns the IDs of installed flows.
func (s *Backend) idsOf(flows []backend.Placed) []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]uint32, len(flows))
	for i, f := range flows {
		ids[i] = s.ids[f.Name]
	}
	return ids
}

// replace gives the flows of now, with these IDs, the place of the flows of was.
func (s *Backend) replace(was, now []backend.Placed, ids []uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range was {
		delete(s.ids, f.Name)
	}
	for i, f := range now {
		s.ids[f.Name] = ids[i]
	}
}
