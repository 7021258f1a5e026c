package toprows

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/shm"
)

// open starts flowtally top and the floor on one mirror, each on a terminal of that size.
func open(bin string, width, height uint16) (*bench.Sides, error) {
	return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
		m, err := newMirror(open)
		if err != nil {
			return nil, err
		}
		program := filepath.Join(bin, "flowtally")
		if _, err := os.Stat(program); err != nil {
			return nil, fmt.Errorf("looking for the program that `make build` makes: %w", err)
		}
		top := exec.Command(program, "top", "--mirror", m.path, "--interval", period.String(), "--sort", "rate")
		ours, err := start(open, top, width, height)
		if err != nil {
			return nil, err
		}
		plain, err := bench.FloorCommand(floorName, m.path, strconv.Itoa(int(width)), strconv.Itoa(int(height)))
		if err != nil {
			return nil, err
		}
		floor, err := start(open, plain, width, height)
		if err != nil {
			return nil, err
		}
		return &bench.Sides{
			Ours:      m.side(ours),
			Ref:       m.side(floor),
			N:         looks,
			Paced:     true,
			MaxSpread: 0.5,
		}, nil
	})
}

// side is the CPU time of a process for each period, while all counters count.
func (m *mirror) side(pid int) bench.Side {
	return func(ctx context.Context, n int) (float64, error) {
		before, err := bench.CPUOf(pid)
		if err != nil {
			return 0, err
		}
		tick := time.NewTicker(period)
		defer tick.Stop()
		for range n {
			select {
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-tick.C:
			}
			m.count()
		}
		after, err := bench.CPUOf(pid)
		return float64(after-before) / float64(n), err
	}
}

// mirror is a mirror whose counters count when the row says so.
type mirror struct {
	path    string
	w       *shm.Writer
	handles []shm.Handle
	values  []shm.Value
	cycles  int
}

func newMirror(open *bench.Closers) (*mirror, error) {
	dir, err := open.MirrorDir()
	if err != nil {
		return nil, err
	}
	m := &mirror{path: filepath.Join(dir, "top.mirror"), values: make([]shm.Value, counters)}
	m.w, err = shm.Create(shm.Options{Path: m.path, History: 1 << 16, HeartbeatPeriod: time.Hour})
	if err != nil {
		return nil, err
	}
	open.Add(m.w.Close)
	for i := range counters {
		h, err := m.w.Add(shm.Entry{
			Name:      fmt.Sprintf("tenant-%04d/https", i),
			Kind:      "flow",
			Source:    "xdp eth0 native",
			ByteBasis: "l2",
			Valid:     true,
		})
		if err != nil {
			return nil, err
		}
		m.handles = append(m.handles, h)
	}
	m.w.SetState(shm.Run)
	for range 3 {
		m.count()
	}
	return m, nil
}

// count lets all counters count, at rates that change their order, and publishes them. Once a second it adds a record of
// each to the history, as the poller does.
func (m *mirror) count() {
	now := shm.Now()
	m.w.BeginCycle()
	var block shm.Block
	for i := range m.values {
		n := uint64((i*7919 + m.cycles*104729) % 100_000)
		v := &m.values[i]
		v.Packets += n
		v.Bytes += 700 * n
		v.SampledAt = now

		block[i%shm.BlockLen] = *v
		if i%shm.BlockLen == shm.BlockLen-1 {
			m.w.PublishBlock(i/shm.BlockLen, &block)
		}
		if m.cycles%10 == 0 {
			m.w.AppendHistory(m.handles[i], *v)
		}
	}
	m.cycles++
	m.w.EndCycle(now)
	m.w.Heartbeat(now)
}
