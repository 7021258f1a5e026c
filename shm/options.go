package shm

import (
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/flowtally/flowtally/internal/space"
)

// Options configure a mirror and its writer. The zero value is for the mirror of the default instance.
type Options struct {
	// Path of the file, on a tmpfs. Empty means DefaultPath(""). Create makes the directory if it is missing. It refuses a
	// directory to which other users may write, and one that a user other than root and the writer's could replace.
	Path string
	// Counters is the highest number of counters in blocks. 0 means any number: the mirror grows by segments of 4096. -1
	// means none. If a mirror to be taken over has more, it keeps them.
	Counters int
	// LatencyCounters limits the latency counters, as Counters does those in blocks.
	LatencyCounters int
	// History is the capacity of the ring in records, rounded up to a power of two, and at least 2. 0 means 65536, -1
	// none. A mirror to be taken over keeps its capacity.
	History int
	// Mode of the file. 0 means 0644.
	Mode fs.FileMode
	// CoolDown is how long a freed slot rests before another counter gets it. Until then readers of the history still find
	// the name of the removed counter (Reader.Entry). 0 means 1 s; a negative value means no time.
	CoolDown time.Duration
	// WaitGroup is the id of a group. The writer wakes waiters (Reader.Wait) of its own user and of this group, because they
	// may read NAME.wait beside the mirror, mode 0640. 0 means no group, mode 0600. -1 means no such file: the writer wakes
	// nobody, and all waiters look once per cycle.
	WaitGroup int
	// HeartbeatPeriod is the time in which readers may expect a sign of life. After two of them without any, they call the
	// writer dead. 0 means 500 ms.
	HeartbeatPeriod time.Duration
	// Replace replaces a file at Path that is not a valid mirror. Without it, Create refuses such a file and leaves it
	// alone.
	Replace bool
	// Logger receives the writer's messages. nil discards them.
	Logger *slog.Logger
	// Reserve reserves space for the file. nil means fallocate; only tests have another.
	Reserve space.Reserve

	hook
}

// hook is called at each named step of the writer, so that a test can kill the writer there. Only tests set it.
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
