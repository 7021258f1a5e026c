package bench

import "errors"

var (
	// ErrDisturbed is returned by a [Side] when its conditions did not hold
	// while it ran (a writer that did not keep its rate, say): the round is
	// discarded and run again, a bounded number of times.
	ErrDisturbed = errors.New("conditions of the measurement did not hold")
	// ErrNoRow: no row has that name.
	ErrNoRow = errors.New("no such row")

	// errNoise: the rounds differ too much to mean anything.
	errNoise = errors.New("noise")
)
