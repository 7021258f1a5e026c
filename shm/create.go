package shm

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/flowtally/flowtally/internal/space"
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
	// Reserve is nil, for fallocate. Tests have others.
	Reserve space.Reserve

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

// newWriter starts writing the mirror in v, fresh or left by another writer at any point of its work,
// and goes on with its counters and history.
func newWriter(o Options, v *view, lock *os.File) (*Writer, error) {
	generation, err := randomWord()
	if err != nil {
		return nil, err
	}
	w := &Writer{path: o.Path, mode: o.Mode, lock: lock, v: v, coolDown: o.CoolDown, log: o.Logger, hook: o.hook, reserve: o.Reserve,
		heartbeat: o.HeartbeatPeriod, limits: [2]uint32{uint32(o.Counters), uint32(o.LatencyCounters)}} // -1 is noneAllowed
	now := Now()
	w.step("adopt-begin")
	if err := w.adopt(now); err != nil {
		return nil, err
	}
	w.adoptDevice()
	w.step("adopt-repaired")

	w.made = v.hdr.generation == 0
	w.started, w.startedWall, w.takeovers = now, time.Now().UnixNano(), v.hdr.takeovers
	if !w.made {
		w.takeovers++
	}
	w.generation, w.state = generation, Boot
	w.introduce(v.hdr, now)
	w.changed()
	w.step("adopt-done")
	return w, nil
}

// introduce stores the words of the header that describe this writer.
func (w *Writer) introduce(h *headerMem, now int64) {
	atomic.StoreInt64(&h.started, w.started)
	atomic.StoreInt64(&h.startedWall, w.startedWall)
	atomic.StoreInt64(&h.heartbeatPeriod, int64(w.heartbeat))
	atomic.StoreInt64(&h.coolDown, int64(w.coolDown))
	atomic.StoreInt64(&h.pollPeriod, int64(w.pollPeriod))
	atomic.StoreUint64(&h.takeovers, w.takeovers)
	w.introduceLimits(h)
	storeTime(&h.heartbeat, now)
	w.step("adopt-generation")
	atomic.StoreUint64(&h.generation, w.generation)
	atomic.StoreUint32(&h.state, uint32(w.state))
}

func (w *Writer) introduceLimits(h *headerMem) {
	atomic.StoreUint32(&h.counterLimit, w.limits[classCounters])
	atomic.StoreUint32(&h.recordLimit, w.limits[classRecords])
}

// randomWord returns a random number that is not 0.
func randomWord() (uint64, error) {
	var b [8]byte
	for {
		if _, err := rand.Read(b[:]); err != nil {
			return 0, fmt.Errorf("drawing a random number: %w", err)
		}
		if g := binary.NativeEndian.Uint64(b[:]); g != 0 {
			return g, nil
		}
	}
}
