package bench

import (
	"errors"
	"fmt"
)

var (
	// ErrDisturbed: the conditions of a [Side] did not hold while it ran. A writer did not keep its rate, say. The round
	// is discarded and runs again, a bounded number of times. Returned by [Row].Prepare or Open it says that the load of
	// the host kept a process from starting, and they are called again within the row's time.
	ErrDisturbed = errors.New("conditions of the measurement did not hold")

	// ErrNoRow: no row has that name.
	ErrNoRow = errors.New("no such row")

	// errCompany: a side never had the core to itself. Its cost is an upper bound.
	errCompany = fmt.Errorf("%w: something else ran on the same core", ErrDisturbed)

	// errNoise: the rounds differ too much to mean anything.
	errNoise = errors.New("noise")

	// errLate: the row's time ended before its rounds did.
	errLate = errors.New("row took too long")
)
