//go:build amd64 && !race

package shm

import "sync/atomic"

// Load returns the counter's value: packets, bytes and sampled-at of one instant. ErrGone: the counter was removed.
// ErrStale: the mirror was given up. ErrBusy: try again.
//
// Load reads the three words first and the sequence word afterwards. If that still is c.last, the writer has published
// nothing since the copy at c.cur became current. It fills the other copy first, so nobody wrote to this one meanwhile.
// Plain loads are enough for this order (barrier quick-fence): amd64 keeps loads in order, and the compiler does not move
// them across the atomic load.
//
// The odd shape of the body keeps it within the compiler's budget for inlining: 76 of 80, which TestLoadInlines checks.
func (c *HandleCounter) Load() (v Value, err error) {
	if v = *c.cur; atomic.LoadUint64(c.seq) != c.last {
		v, err = c.load()
	}
	return
}
