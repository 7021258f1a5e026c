package bench

import (
	"errors"
	"testing"
)

func TestAcquireClosesBackwardsAlsoWhenItFails(t *testing.T) {
	order := ""
	open := func(c *Closers) {
		c.Add(func() error { order += "a"; return nil })
		c.Add(func() error { order += "b"; return errors.New("b stays") })
	}
	s, err := Acquire(func(c *Closers) (*Sides, error) { open(c); return new(Sides), nil })
	if err != nil || order != "" {
		t.Fatalf("acquired: %v, closed %q", err, order)
	}
	if err := s.Close(); err == nil || order != "ba" {
		t.Errorf("Close: %v, closed %q; want the error of b and ba", err, order)
	}
	if err := s.Close(); err != nil || order != "ba" {
		t.Errorf("Close again: %v, closed %q", err, order)
	}
	order = ""
	boom := errors.New("boom")
	if _, err := Acquire(func(c *Closers) (*Sides, error) { open(c); return nil, boom }); !errors.Is(err, boom) || order != "ba" {
		t.Errorf("failed: %v, closed %q; want boom and ba", err, order)
	}
}
