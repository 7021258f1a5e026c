package control

import (
	"cmp"
	"context"
	"fmt"
	"sync"
)

// Commit is the decision whether the changes of a call stay. It is made once: the goroutine of the call decides by
// [Commit.Keep], which refuses when its ctx has ended before. The caller, who returns then, learns the decision by
// [Commit.Abandon].
type Commit struct {
	doing string          // describes the call in errors
	life  context.Context // of the instance: the changes of a call that it ends do not stay

	mu        sync.Mutex
	kept      bool
	long      bool // long work may follow Keep
	abandoned bool // the caller has returned
}

// NewCommit returns the decision on a call.
func NewCommit(life context.Context, doing string) *Commit { return &Commit{doing: doing, life: life} }

// GoOn notes that the caller need not wait for the work that follows Keep.
func (c *Commit) GoOn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.long = true
}

// Keep decides that the changes of the call stay. After an error the caller has given up, or the instance closes, and
// the call undoes its changes. The changes of a call without a Commit stay.
func (c *Commit) Keep(ctx context.Context) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := cmp.Or(ctx.Err(), c.life.Err()); err != nil {
		return fmt.Errorf("%s: %w", c.doing, err)
	}
	c.kept = true
	return nil
}

// Abandon notes that the caller returns, because its ctx has ended; false: the call is about to return by itself.
// kept says that the changes of the call stay.
func (c *Commit) Abandon() (abandoned, kept bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abandoned = !c.kept || c.long
	return c.abandoned, c.kept
}

// IsAbandoned reports whether the caller has returned.
func (c *Commit) IsAbandoned() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.abandoned
}

// Describe names the flows of a call in errors.
func Describe(names []string) string {
	switch len(names) {
	case 0:
		return "no flows"
	case 1:
		return fmt.Sprintf("flow %q", names[0])
	}
	return fmt.Sprintf("%d flows (%q, …)", len(names), names[0])
}
