package bench

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

// Closers holds the resources of a row, in the order in which it acquired them.
type Closers []func() error

// Add takes the function that releases the resource acquired last.
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

// Acquire returns the sides that open makes. Their Close releases the resources that
// open acquired; when open fails, Acquire releases them.
func Acquire(open func(c *Closers) (*Sides, error)) (*Sides, error) {
	c := new(Closers)
	s, err := open(c)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	s.Close = c.Close
	return s, nil
}

// MirrorDir makes a directory on the tmpfs, for a mirror. It goes, with all that is in it, when c is closed.
func (c *Closers) MirrorDir() (string, error) {
	dir, err := os.MkdirTemp("/dev/shm", fmt.Sprintf("flowtally-bench-%d-", os.Getpid()))
	if err != nil {
		return "", fmt.Errorf("making a directory for a mirror: %w", err)
	}
	c.Add(func() error { return os.RemoveAll(dir) })
	return dir, nil
}
