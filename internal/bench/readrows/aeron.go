package readrows

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/edsrzf/mmap-go"

	"github.com/flowtally/flowtally/internal/bench"
)

// The layout of Aeron's cnc.dat: a header, the ring of commands to the driver, the buffer of its answers, the metadata of
// the counters, their values, and a log of errors. The header has the lengths of the others.
const (
	aeronHeader        = 128
	aeronVersion       = 0<<16 | 2<<8 | 0 // major, minor, patch
	aeronToDriver      = 1<<20 + 768      // with the trailer of a ring
	aeronToClients     = 1<<20 + 128      // with the trailer of a broadcast buffer
	aeronMetadata      = 512              // of a counter
	aeronValue         = 128              // of a counter
	aeronErrors        = 1 << 20
	aeronMost          = 2 * counters // counters that fit: a driver leaves places free
	aeronLabelLength   = 128          // in the metadata
	aeronAllocated     = 1            // state of a counter
	aeronUnused        = 0            // state of the first place behind the last counter
	aeronNeverToBeUsed = 1<<63 - 1    // the time at which the place of a counter in use may be taken
)

// aeron is a mapped counters file.
type aeron struct {
	metadata, values []byte
}

// openAeron compares the mirror with a counters file, which read reads.
func openAeron(read func(*aeron) uint64) opener {
	return func(context.Context, bench.Env) (*bench.Sides, error) {
		return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
			ours, err := openMirror(open, bench.ThreadCPU)
			if err != nil {
				return nil, err
			}
			dir, err := open.MirrorDir() // on the tmpfs, where a driver has its files
			if err != nil {
				return nil, err
			}
			path := filepath.Join(dir, "cnc.dat")
			if err := os.WriteFile(path, aeronFile(), 0o600); err != nil {
				return nil, fmt.Errorf("writing a counters file of Aeron: %w", err)
			}
			a, err := mapAeron(open, path)
			if err != nil {
				return nil, err
			}
			return &bench.Sides{
				Ours: ours,
				Ref:  reading(bench.ThreadCPU, func() (uint64, error) { return read(a), nil }),
			}, nil
		})
	}
}

// aeronFile returns a file with the counters, as a driver writes it.
func aeronFile() []byte {
	metadataAt := aeronHeader + aeronToDriver + aeronToClients
	valuesAt := metadataAt + aeronMost*aeronMetadata
	b := make([]byte, valuesAt+aeronMost*aeronValue+aeronErrors)
	for i, word := range []uint32{aeronVersion, aeronToDriver, aeronToClients, aeronMost * aeronMetadata, aeronMost * aeronValue, aeronErrors} {
		binary.NativeEndian.PutUint32(b[4*i:], word)
	}
	for i := range counters {
		m := b[metadataAt+i*aeronMetadata:][:aeronMetadata]
		binary.NativeEndian.PutUint32(m, aeronAllocated)
		binary.NativeEndian.PutUint64(m[8:], aeronNeverToBeUsed)
		n := copy(m[aeronLabelLength+4:], nameOf(i))
		binary.NativeEndian.PutUint32(m[aeronLabelLength:], uint32(n))
		binary.NativeEndian.PutUint64(b[valuesAt+i*aeronValue:], packetsOf(i))
	}
	return b
}

// mapAeron maps a counters file and finds its buffers.
func mapAeron(open *bench.Closers, path string) (*aeron, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening a counters file of Aeron: %w", err)
	}
	defer f.Close()
	b, err := mmap.Map(f, mmap.RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("mapping a counters file of Aeron: %w", err)
	}
	open.Add(b.Unmap)

	word := func(i int) int { return int(binary.NativeEndian.Uint32(b[4*i:])) }
	if word(0) != aeronVersion {
		return nil, errors.New("reading a counters file of Aeron: not version 0.2.0")
	}
	metadataAt := aeronHeader + word(1) + word(2)
	valuesAt := metadataAt + word(3)
	return &aeron{metadata: b[metadataAt:valuesAt], values: b[valuesAt:][:word(4)]}, nil
}

// inUse adds up the counters that are in use. It takes the steps of Aeron's own reader, but for the label, which that
// reader makes a string of.
func inUse(a *aeron) (sum uint64) {
	for i := range len(a.metadata) / aeronMetadata {
		switch load32(a.metadata, i*aeronMetadata) {
		case aeronAllocated:
			sum += load64(a.values, i*aeronValue)
		case aeronUnused:
			return sum
		}
	}
	return sum
}

// byID adds up the counters whose numbers a program knows. It does not look whether they are in use.
func byID(a *aeron) (sum uint64) {
	for id := range counters {
		sum += load64(a.values, id*aeronValue)
	}
	return sum
}
