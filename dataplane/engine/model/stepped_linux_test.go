package model

import (
	"context"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
)

// stepped calls step around the calls of the backend between which the engine writes the mirror. So a process is killed
// between two writes of the mirror, too.
type stepped struct {
	*xdp.Backend
	step func(what string)
	slow bool // world.slow
}

// SetIdle implements backend.Idler.
func (s *stepped) SetIdle(idle bool) { s.Backend.SetIdle(idle || s.slow) }

// Install implements backend.Backend.
func (s *stepped) Install(ctx context.Context, flows []backend.Placed) ([]backend.Installed, error) {
	defer s.step("installed")
	return s.Backend.Install(ctx, flows)
}

// SetActive implements backend.SoftwareBackend.
func (s *stepped) SetActive(ctx context.Context, flows []backend.Placed, on bool) error {
	defer s.step("activated")
	return s.Backend.SetActive(ctx, flows, on)
}

// Remove implements backend.Backend.
func (s *stepped) Remove(ctx context.Context, flows []backend.Placed) error {
	s.step("remove")
	defer s.step("removed")
	return s.Backend.Remove(ctx, flows)
}

// RemoveStale implements backend.Backend.
func (s *stepped) RemoveStale(ctx context.Context) error {
	s.step("remove stale")
	defer s.step("removed stale")
	return s.Backend.RemoveStale(ctx)
}

// Alter implements backend.Alterer.
func (s *stepped) Alter(ctx context.Context, c backend.Change) ([]backend.Installed, func(keep bool) error, error) {
	in, end, err := s.Backend.Alter(ctx, c)
	s.step("altered")
	if end == nil {
		return in, nil, err
	}
	return in, func(keep bool) error {
		s.step("end of alter")
		defer s.step("ended alter")
		return end(keep)
	}, err
}

// Source implements backend.Backend. The engine asks for the source of each flow when it writes the entry.
func (s *stepped) Source(f backend.Placed) dataplane.Source {
	s.step("source of " + f.Name)
	return s.Backend.Source(f)
}
