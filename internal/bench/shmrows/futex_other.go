//go:build !linux

package shmrows

import (
	"errors"
	"fmt"

	"github.com/flowtally/flowtally/internal/bench"
)

type sharedWord struct{}

func mapWord(*bench.Closers, string) (*sharedWord, error) {
	return nil, fmt.Errorf("making a futex: %w", errors.ErrUnsupported)
}

func (*sharedWord) wake(uint64) {}

func (*sharedWord) sleep(uint64) error { return errors.ErrUnsupported }

func gettid() int { return 0 }
