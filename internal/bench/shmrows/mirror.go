package shmrows

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/shm"
)

// mirror is a mirror of its own for one row, in a directory of its own on the
// tmpfs that mirrors live on.
type mirror struct {
	path    string
	w       *shm.Writer
	r       *shm.Reader
	handles []shm.Handle // of the block counters, then of the latency counters
}

// newMirror makes a mirror in which every counter holds a value.
func newMirror(open *bench.Closers, counters, latency int) (*mirror, error) {
	return newMirrorFor(open, counters, latency, 0)
}

// newMirrorFor is newMirror with a group of waiters, as shm.Options has it.
func newMirrorFor(open *bench.Closers, counters, latency, waitGroup int) (*mirror, error) {
	dir, err := open.MirrorDir()
	if err != nil {
		return nil, err
	}
	m := &mirror{path: filepath.Join(dir, "bench.mirror")}
	m.w, err = shm.Create(shm.Options{
		Path:            m.path,
		History:         64,
		CoolDown:        -1,
		WaitGroup:       waitGroup,
		HeartbeatPeriod: time.Hour, // a row may be held up for longer than a living writer is silent
	})
	if err != nil {
		return nil, err
	}
	open.Add(m.w.Close)
	for i := range counters + latency {
		h, err := m.w.Add(shm.Entry{Name: fmt.Sprintf("c%d", i), Kind: "flow", Latency: i >= counters, Valid: true})
		if err != nil {
			return nil, err
		}
		m.handles = append(m.handles, h)
	}
	m.publish(counters)
	if m.r, err = shm.OpenReader(m.path); err != nil {
		return nil, err
	}
	open.Add(m.r.Close)
	return m, nil
}

// publish gives every counter a value, in one cycle.
func (m *mirror) publish(counters int) {
	m.w.BeginCycle()
	b := block(1)
	for i := range counters / shm.BlockLen {
		m.w.PublishBlock(i, &b)
	}
	for _, h := range m.handles[counters:] {
		m.w.PublishRecord(h.Index, value(1))
	}
	m.w.EndCycle(shm.Now())
}

// churn removes n counters of a mirror without latency counters, and adds as many.
func (m *mirror) churn(n int) error {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		h := &m.handles[random.IntN(len(m.handles))]
		err := m.w.Remove(*h)
		if err == nil {
			*h, err = m.w.Add(shm.Entry{Name: fmt.Sprintf("n%d", i), Kind: "flow", Valid: true})
		}
		if err != nil {
			return err
		}
	}
	m.publish(len(m.handles))
	return nil
}

// value is the n-th value of a counter. Every reader can check it.
func value(n uint64) shm.Value {
	return shm.Value{Packets: n, Bytes: 1500 * n, SampledAt: int64(10*n + 1)}
}

// block is the n-th values of a block.
func block(n uint64) (b shm.Block) {
	for i := range b {
		b[i] = value(n)
	}
	return b
}
