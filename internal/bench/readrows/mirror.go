package readrows

import (
	"fmt"
	"path/filepath"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/shm"
)

// packetsOf is what counter i has counted.
func packetsOf(i int) uint64 { return uint64(i)*7919 + 1 }

// bytesOf is what counter i has counted, in bytes.
func bytesOf(i int) uint64 { return packetsOf(i) * 743 }

// nameOf is the name of counter i.
func nameOf(i int) string { return fmt.Sprintf("tenant-%04d-https", i) }

// total is the sum of the packets of all counters.
func total() uint64 { return counters*(counters-1)/2*7919 + counters }

// sumError: a side has read other values than were written.
type sumError struct{ got uint64 }

func (e *sumError) Error() string {
	return fmt.Sprintf("%d packets were read, %d were written", e.got, total())
}

// openMirror makes a mirror of the counters, and returns the side that reads it.
func openMirror(open *bench.Closers, clock bench.Clock) (bench.Side, error) {
	dir, err := open.MirrorDir()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "read.mirror")
	w, err := shm.Create(shm.Options{Path: path, History: -1})
	if err != nil {
		return nil, err
	}
	open.Add(w.Close)
	handles, err := fill(w)
	if err != nil {
		return nil, err
	}
	r, err := shm.OpenReader(path)
	if err != nil {
		return nil, err
	}
	open.Add(r.Close)

	list := make([]shm.HandleCounter, counters)
	for i, h := range handles {
		if list[i], err = r.Counter(h); err != nil {
			return nil, err
		}
	}

	return reading(clock, func() (packets uint64, err error) {
		for i := range list {
			v, err := list[i].Load()
			if err != nil {
				return 0, err
			}
			packets += v.Packets
		}
		return packets, nil
	}), nil
}

// fill adds the counters and publishes their values.
func fill(w *shm.Writer) ([]shm.Handle, error) {
	handles := make([]shm.Handle, counters)
	for i := range handles {
		h, err := w.Add(shm.Entry{Name: nameOf(i), Kind: "flow", Valid: true})
		if err != nil {
			return nil, err
		}
		handles[i] = h
	}

	now := shm.Now()
	var b shm.Block
	w.BeginCycle()
	for i := range counters / shm.BlockLen {
		for j := range b {
			at := i*shm.BlockLen + j
			b[j] = shm.Value{Packets: packetsOf(at), Bytes: bytesOf(at), SampledAt: now}
		}
		w.PublishBlock(i, &b)
	}
	w.EndCycle(now)
	return handles, nil
}
