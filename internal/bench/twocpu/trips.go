package twocpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/shm"
)

// A round trip is too short to be timed alone. This many are timed together, and a round is the median of these times
// (p50).
const tripsTimed = 8

// ErrNoReply: the other CPU was silent for far longer than it can be.
var ErrNoReply = errors.New("no reply from the other CPU")

// Patience bounds a wait, in reads.
const Patience = 1 << 31

// Lines is how many lines a lane has. Trips take turns over them, because how far a line travels depends on its
// address.
const Lines = 8

// Lane is words from one CPU to the other, each on a cache line of its own.
type Lane [Lines]struct {
	atomic.Uint64
	_ [15]uint64
}

// Say stores n.
func (l *Lane) Say(n uint64) { l[n%Lines].Store(n) }

// Hear returns when n was said.
func (l *Lane) Hear(n uint64) error {
	word := &l[n%Lines]
	for range Patience {
		if word.Load() >= n {
			return nil
		}
	}
	return ErrNoReply
}

// Ends are the two ends of round trips. Numbers rise by one.
type Ends struct {
	// Say, on this CPU, publishes a number, and Hear waits for the reply to it.
	Say  func(n uint64)
	Hear func(n uint64) error
	// Reply, on the other CPU, waits for the numbers first to last and publishes each back.
	Reply func(first, last uint64) error
}

// Replier is a Reply of one function that waits for a number and one that publishes it back.
func Replier(hear func(uint64) error, say func(uint64)) func(first, last uint64) error {
	return func(first, last uint64) error {
		for i := first; i <= last; i++ {
			if err := hear(i); err != nil {
				return err
			}
			say(i)
		}
		return nil
	}
}

// Words makes a side of the round trips of one word in each direction: a cache line's way, there and back.
func Words(p *Peer) bench.Side {
	ping, pong := new(Lane), new(Lane)
	return RoundTrips(p, Ends{
		Say:   ping.Say,
		Hear:  pong.Hear,
		Reply: Replier(ping.Hear, pong.Say),
	})
}

// OneWay is half of a side of round trips.
func OneWay(trips bench.Side) bench.Side {
	return func(ctx context.Context, n int) (float64, error) {
		ns, err := trips(ctx, n)
		return ns / 2, err
	}
}

// RoundTrips makes a side of n round trips. It returns the median of one. Numbers go on from round to round, because
// written words stay; the first is 2.
func RoundTrips(p *Peer, e Ends) bench.Side {
	t := &trips{ends: e, last: 1}
	return func(_ context.Context, n int) (float64, error) {
		batches := max(n/tripsTimed, 1)
		first := t.last + 1
		end := t.last + 1 + uint64(batches*tripsTimed)
		replied := make(chan error, 1)
		if err := p.Start(func() { replied <- e.Reply(first, end) }); err != nil {
			return 0, err
		}

		ns, err := t.measure(batches)
		t.last = end // also after an error: the other end may have published up to there
		if replyErr := <-replied; replyErr != nil {
			err = errors.Join(err, fmt.Errorf("replying: %w", replyErr))
		}
		return ns, err
	}
}

// trips is the end of round trips on this CPU.
type trips struct {
	ends  Ends
	last  uint64    // the number of the trip before
	times []float64 // of a trip, one of each batch; here to be allocated once
}

// measure makes batches of trips, and returns the median time of a trip.
func (t *trips) measure(batches int) (float64, error) {
	// The first trip waits for the other thread to wake up.
	if err := t.trip(); err != nil {
		return 0, err
	}

	t.times = t.times[:0]
	for range batches {
		start := shm.Now()
		for range tripsTimed {
			if err := t.trip(); err != nil {
				return 0, err
			}
		}
		t.times = append(t.times, float64(shm.Now()-start)/tripsTimed)
	}
	slices.Sort(t.times)
	return t.times[len(t.times)/2], nil
}

func (t *trips) trip() error {
	t.last++
	t.ends.Say(t.last)
	return t.ends.Hear(t.last)
}
