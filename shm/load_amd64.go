//go:build amd64 && !race

package shm

import "sync/atomic"

// Load returns the counter's value: packets, bytes and sampled-at of one instant. ErrGone: the counter was removed.
// ErrStale: the mirror was given up. ErrBusy: try again.
//
// The three words are read before the sequence word. If that is still last, nothing was published since, so that the copy
// they came from is the current one, which no writer fills. Plain loads do, because amd64 keeps them in order and the
// compiler does not move them across the atomic one (barrier quick-fence). The shape of the function fits the compiler's
// budget for inlining (76 of 80; TestLoadInlines).
func (c *HandleCounter) Load() (v Value, err error) {
	if v = *c.cur; atomic.LoadUint64(c.seq) != c.last {
		v, err = c.load()
	}
	return
}
