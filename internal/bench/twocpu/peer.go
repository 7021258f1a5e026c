// Package twocpu holds the parts that rows of the bench about two CPUs share: a thread on the other CPU, and
// round trips between the two.
package twocpu

import (
	"errors"
	"fmt"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/probe"
)

// OneCPU is the error of a row about two CPUs where the process has one.
func OneCPU() error {
	return &probe.UnsupportedError{
		Feature: "a second CPU",
		Reason:  "this process may run on one only",
		Fix:     "run the bench where it has two",
	}
}

// Peer runs functions on a thread that is pinned to the other CPU, one at a time.
type Peer struct {
	jobs chan func()
	done chan error
}

// NewPeer starts the thread. It ends when open is closed.
func NewPeer(open *bench.Closers, env bench.Env) (*Peer, error) {
	if env.Peer < 0 {
		return nil, OneCPU()
	}
	p := &Peer{jobs: make(chan func()), done: make(chan error, 1)}
	go func() {
		p.done <- bench.Pinned(env.Peer, func() {
			for f := range p.jobs {
				f()
			}
		})
	}()
	open.Add(func() error {
		close(p.jobs)
		return <-p.done // after the function that runs
	})
	return p, nil
}

// Start returns when the other CPU has begun to run f. It waits for the function before.
func (p *Peer) Start(f func()) error {
	select {
	case p.jobs <- f:
		return nil
	case err := <-p.done:
		p.done <- err
		return fmt.Errorf("starting on the other CPU: %w", errors.Join(err, errors.New("its thread is gone")))
	}
}
