//go:build !linux

package toprows

import (
	"errors"

	"github.com/flowtally/flowtally/internal/bench"
)

func open(string, uint16, uint16) (*bench.Sides, error) { return nil, errors.New("it takes Linux") }
