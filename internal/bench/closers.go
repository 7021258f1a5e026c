package bench

import (
	"errors"
	"slices"
)

// Closers is what a row has acquired, in order.
type Closers []func() error

// Add takes what releases the thing acquired last.
func (c *Closers) Add(f func() error) { *c = append(*c, f) }

// Close releases in reverse order, once.
func (c *Closers) Close() error {
	var errs []error
	for _, f := range slices.Backward(*c) {
		errs = append(errs, f())
	}
	*c = nil
	return errors.Join(errs...)
}

// Acquire returns what open makes, closing on Close what it acquired; where
// open fails that happens at once.
func Acquire(open func(c *Closers) (*Sides, error)) (*Sides, error) {
	c := new(Closers)
	s, err := open(c)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	s.Close = c.Close
	return s, nil
}
