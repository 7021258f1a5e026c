package shm

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// newWriter returns a writer for the mirror in v, which continues its counters and history. v is fresh, or an earlier writer
// left it, perhaps killed at any point of its work.
func newWriter(o Options, v *view, lock *os.File) (*Writer, error) {
	generation, err := randomWord()
	if err != nil {
		return nil, err
	}
	w := &Writer{
		path:      o.Path,
		mode:      o.Mode,
		lock:      lock,
		v:         v,
		coolDown:  o.CoolDown,
		heartbeat: o.HeartbeatPeriod,
		limits:    [2]uint32{uint32(o.Counters), uint32(o.LatencyCounters)}, // -1 is noneAllowed
		log:       o.Logger,
		hook:      o.hook,
		reserve:   o.Reserve,
	}

	now := Now()
	w.step("adopt-begin")
	if err := w.adopt(now); err != nil {
		return nil, err
	}
	w.adoptDevice()
	w.step("adopt-repaired")

	w.made = v.hdr.generation == 0
	w.takeovers = v.hdr.takeovers
	if !w.made {
		w.takeovers++
	}
	w.started = now
	w.startedWall = time.Now().UnixNano()
	w.generation = generation
	w.state = Boot
	w.introduce(v.hdr, now)
	w.changed()
	w.step("adopt-done")
	return w, nil
}

// introduce stores the words of the header that describe this writer. It stores the generation after the
// others, so a reader that sees this generation sees the other words too.
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
