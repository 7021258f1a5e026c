package plugin

import (
	"math/rand/v2"
	"time"
)

// backoff spaces restarts: the pause doubles from min to max as long as the
// plugin dies soon, and starts over when it lived ten times the last pause.
// Jitter of up to half the pause keeps a fleet from restarting in step.
type backoff struct {
	min, max time.Duration
	last     time.Duration // 0: before the first
}

func (b *backoff) lived(d time.Duration) {
	if d >= 10*b.last {
		b.last = 0
	}
}

func (b *backoff) next() time.Duration {
	b.last = min(max(2*b.last, b.min), b.max)
	return b.last - rand.N(b.last/2+1)
}
