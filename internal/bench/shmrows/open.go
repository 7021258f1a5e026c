package shmrows

import (
	"errors"
	"slices"

	"github.com/flowtally/flowtally/internal/bench"
)

// closers is what a row has acquired, in order.
type closers []func() error

func (c *closers) add(f func() error) { *c = append(*c, f) }

// close releases in reverse order, once.
func (c *closers) close() error {
	var errs []error
	for _, f := range slices.Backward(*c) {
		errs = append(errs, f())
	}
	*c = nil
	return errors.Join(errs...)
}

// sides returns what open makes, closing on Close or, where open fails, at once.
func sides(open func(c *closers) (*bench.Sides, error)) (*bench.Sides, error) {
	c := new(closers)
	s, err := open(c)
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	s.Close = c.close
	return s, nil
}
