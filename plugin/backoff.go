package plugin

import (
	"math/rand/v2"
	"time"
)

// backoff computes the pauses before restarts. The pause doubles from min to max each time the plugin dies soon, and
// starts over after a life of ten times the last pause. Up to half of it is random, so that the hosts of a fleet do not
// restart in step.
type backoff struct {
	min, max time.Duration
	last     time.Duration // without jitter; 0 before the first restart
}

// lived notes how long the last process ran.
func (b *backoff) lived(d time.Duration) {
	if d >= 10*b.last {
		b.last = 0
	}
}

// next returns the pause before the next start.
func (b *backoff) next() time.Duration {
	b.last = min(max(2*b.last, b.min), b.max)
	return b.last - rand.N(b.last/2+1)
}
