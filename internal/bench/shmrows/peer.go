package shmrows

import (
	"errors"
	"fmt"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/probe"
)

// errOneCPU: the row is about two CPUs.
var errOneCPU = &probe.UnsupportedError{
	Feature: "a second CPU",
	Reason:  "this process may run on one only",
	Fix:     "run the bench where it has two",
}

// peer runs functions on a thread that is pinned to the other CPU, one at a time.
type peer struct {
	jobs chan func()
	done chan error
}

func newPeer(open *bench.Closers, env bench.Env) (*peer, error) {
	if env.Peer < 0 {
		return nil, errOneCPU
	}
	p := &peer{jobs: make(chan func()), done: make(chan error, 1)}
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

// start has f run on the other CPU and returns once f was taken.
func (p *peer) start(f func()) error {
	select {
	case p.jobs <- f:
		return nil
	case err := <-p.done:
		p.done <- err
		return fmt.Errorf("starting on the other CPU: %w", errors.Join(err, errors.New("its thread is gone")))
	}
}
