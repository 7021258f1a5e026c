package words

import (
	"context"
	"fmt"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// Service implements the methods of dataplane.Service for reserved words.
type Service struct {
	Set *Set
	// Lock locks the lock of control calls, or fails when ctx ends. Unlock unlocks it. doing describes the call in errors.
	Lock   func(ctx context.Context, doing string) error
	Unlock func()
	// MayRead returns an error if the engine refuses calls that only read.
	MayRead func(ctx context.Context, doing string) error
	// Taken reports whether another counter has that name. Service holds the lock when it calls Taken.
	Taken func(name string) bool
}

// Start reserves the words of the configuration.
func (s Service) Start(names []string) error {
	for _, name := range names {
		if _, err := s.Set.Reserve(name); err != nil {
			return err
		}
	}
	return nil
}

// ReserveWords implements dataplane.Service.
func (s Service) ReserveWords(ctx context.Context, name string) (out dataplane.ReservedWords, err error) {
	doing := fmt.Sprintf("reserving words %.80q", name)
	if err := flow.ValidateName(name); err != nil {
		return out, fmt.Errorf("%s: %w: %w", doing, dataplane.ErrInvalid, err)
	}
	if err := s.Lock(ctx, doing); err != nil {
		return out, err
	}
	defer s.Unlock()
	if s.Taken(name) {
		return out, fmt.Errorf("%s: a flow or a queue pair has a counter of that name: %w; choose another name", doing, dataplane.ErrExists)
	}
	return s.Set.Reserve(name)
}

// ReleaseWords implements dataplane.Service.
func (s Service) ReleaseWords(ctx context.Context, name string) error {
	if err := s.Lock(ctx, fmt.Sprintf("releasing words %.80q", name)); err != nil {
		return err
	}
	defer s.Unlock()
	return s.Set.Release(name)
}

// ReservedWords implements dataplane.Service.
func (s Service) ReservedWords(ctx context.Context) ([]dataplane.ReservedWords, error) {
	if err := s.MayRead(ctx, "listing the reserved words"); err != nil {
		return nil, err
	}
	return s.Set.List(), nil
}
