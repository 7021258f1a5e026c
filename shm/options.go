package shm

import (
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/flowtally/flowtally/internal/space"
)

// Options shape a mirror and its writer. The zero value makes or takes over the default instance's.
type Options struct {
	// Path of the file, on a tmpfs. Empty means DefaultPath(""). Create makes the directory if it is missing. Only the
	// writer's user may be able to write to the directory, and only root and that user to replace it or a directory
	// above it.
	Path string
	// Counters is how many counters in blocks there may be at a time. 0 means any number: the mirror grows by segments
	// of 4096. -1 means none. A mirror that holds more when it is taken over keeps them.
	Counters int
	// LatencyCounters limits the latency counters, as Counters does those in blocks.
	LatencyCounters int
	// History is the capacity of the ring in records, rounded up to a power of two, and at least 2. 0 means 65536, -1
	// none. A mirror that is taken over keeps its own.
	History int
	// Mode of the file. 0 means 0644.
	Mode fs.FileMode
	// CoolDown is how long a freed slot waits before it is used again. 0 means 1 s; a negative value means no time.
	CoolDown time.Duration
	// WaitGroup is the id of the group whose members the writer wakes when they wait (Reader.Wait): they may read
	// NAME.wait beside the mirror, mode 0640. 0 means no group: only the writer's user may, mode 0600. -1 means no such
	// file: all waiters look once per cycle.
	WaitGroup int
	// HeartbeatPeriod is how often readers may expect a sign of life. 0 means 500 ms.
	HeartbeatPeriod time.Duration
	// Replace throws away a file at Path that is not a valid mirror. Without Replace, Create refuses such a file and
	// leaves it as it is.
	Replace bool
	// Logger gets what the writer has to say. nil discards it.
	Logger *slog.Logger
	// Reserve is nil, for fallocate. Tests have others.
	Reserve space.Reserve

	hook
}

// hook is called at the named steps of the work. Only tests set it.
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
