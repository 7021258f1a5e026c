package shm

import (
	"fmt"
	"io/fs"
	"log/slog"
	"time"
)

// Options shape a mirror and its writer. The zero value makes or takes over the default instance's.
type Options struct {
	// Path of the file, on a tmpfs. Empty means DefaultPath(""). Its directory
	// is made when it is missing; only the writer's user may be able to write to it, and
	// only root and the writer's user to replace it or a directory above it.
	Path string
	// Counters is how many counters in blocks there may be at a time. 0 means any number: the mirror grows by segments
	// of 4096. -1 means none. A mirror that holds more when it is taken over keeps them.
	Counters int
	// LatencyCounters is the same of latency counters.
	LatencyCounters int
	// History is the capacity of the ring in records, rounded up to a power of
	// two, 2 at least. 0 means 65536, -1 none. A mirror that is there keeps its own.
	History int
	// Mode of the file. 0 means 0644.
	Mode fs.FileMode
	// CoolDown is how long a freed slot waits before it is used again. 0 means 1 s, a negative one not at all.
	CoolDown time.Duration
	// WaitGroup is the id of the group whose members the writer wakes when they wait (Reader.Wait):
	// they may read NAME.wait beside the mirror, mode 0640. 0 means no group: the file is the writer's
	// user's alone, mode 0600. -1: no such file is made, and all waiters look once per cycle.
	WaitGroup int
	// HeartbeatPeriod is how often readers may expect a sign of life. 0 means 500 ms.
	HeartbeatPeriod time.Duration
	// Replace throws away a file at Path that is not a valid mirror. Without it
	// such a file is refused and stays as it is.
	Replace bool
	// Logger; nil discards.
	Logger *slog.Logger

	hook
}

// hook is called at the named steps of the work, by tests only; nil otherwise.
type hook func(step string)

func (h hook) step(name string) {
	if h != nil {
		h(name)
	}
}

func (o Options) withDefaults() Options {
	if o.Path == "" {
		o.Path = DefaultPath("")
	}
	switch o.History {
	case 0:
		o.History = 65536
	case -1:
		o.History = 0
	}
	if o.Mode == 0 {
		o.Mode = 0o644
	}
	if o.CoolDown == 0 {
		o.CoolDown = time.Second
	}
	o.CoolDown = max(0, o.CoolDown)
	if o.HeartbeatPeriod <= 0 {
		o.HeartbeatPeriod = 500 * time.Millisecond
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// valid refuses limits that the format cannot hold.
func (o *Options) valid() error {
	for class, n := range [...]int{o.Counters, o.LatencyCounters} {
		if n < -1 || n > MaxCounters {
			return fmt.Errorf("limit of %d %s: must be -1 to %d: %w", n, nameOf(class), MaxCounters, ErrInvalid)
		}
	}
	return nil
}
