package readrows

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/cside"
	"github.com/flowtally/flowtally/probe"
)

// The layout of VPP's statistics segment, version 2: a header, and vectors. A vector has its length in the word in front of
// it. The header points to the vector of the directory. A directory entry of combined counters points to a vector with a
// pointer for each thread of VPP, to the vector of that thread's counters. Pointers are addresses in VPP.
const (
	vppVersion    = 2
	vppBase       = 0x1300_0000_0000 // where the segment lies in VPP
	vppDirectory  = 64               // from the beginning of the segment; the header has 48 bytes
	vppEntry      = 8 + 8 + 128      // type, pointer, name
	vppThreads    = vppDirectory + vppEntry + 8
	vppCounters   = vppThreads + 8 + 8
	vppSize       = vppCounters + 16*counters
	vppCombined   = 3 // type of an entry: packets and bytes
	vppName       = "/flows"
	vppWord       = 8
	vppEpoch      = 1 // of the directory; 0 would say that nobody may read yet
	vppReader     = "flowtally-bench-govpp"
	vppPatience   = 10 * time.Second
	vppSocketName = "stats.sock"
)

// openVPP compares the mirror with a segment that govpp reads, in a process of its own on the same CPU. The program of
// that process is in bin.
func openVPP(bin string) opener {
	return func(context.Context, bench.Env) (*bench.Sides, error) {
		return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
			program := filepath.Join(bin, vppReader)
			if _, err := os.Stat(program); err != nil {
				return nil, &probe.UnsupportedError{
					Feature: "govpp",
					Reason:  program + " is missing",
					Fix:     "run make bench, which builds it",
				}
			}
			ours, err := openMirror(open, bench.ThreadCPU)
			if err != nil {
				return nil, err
			}
			socket, err := serveVPP(open)
			if err != nil {
				return nil, err
			}
			peer, err := cside.Start(open, program, socket, vppName, strconv.FormatUint(total(), 10))
			if err != nil {
				return nil, err
			}
			if err := peer.Ready(vppPatience); err != nil {
				return nil, err
			}
			return &bench.Sides{
				Ours: ours,
				Ref:  func(_ context.Context, n int) (float64, error) { return peer.Ask("govpp", n) },
			}, nil
		})
	}
}

// serveVPP writes a segment with the counters, and hands it out on a socket as VPP does: to who connects, as a file
// descriptor. It returns the path of the socket.
func serveVPP(open *bench.Closers) (string, error) {
	dir, err := open.MirrorDir()
	if err != nil {
		return "", err
	}
	segment := filepath.Join(dir, "stats")
	if err := os.WriteFile(segment, vppSegment(), 0o600); err != nil {
		return "", fmt.Errorf("writing a statistics segment: %w", err)
	}
	f, err := os.Open(segment)
	if err != nil {
		return "", fmt.Errorf("opening a statistics segment: %w", err)
	}
	open.Add(f.Close)

	socket := filepath.Join(dir, vppSocketName)
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: socket})
	if err != nil {
		return "", fmt.Errorf("listening for readers of the segment: %w", err)
	}
	served := make(chan error, 1)
	go func() { served <- handOut(listener, f) }()
	open.Add(func() error { return errors.Join(listener.Close(), <-served) })
	return socket, nil
}

// handOut sends f to everybody who connects, until the listener is closed.
func handOut(listener *net.UnixListener, f *os.File) error {
	for {
		conn, err := listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("waiting for a reader of the segment: %w", err)
		}
		_, _, err = conn.WriteMsgUnix([]byte{0}, syscall.UnixRights(int(f.Fd())), nil)
		if err := errors.Join(err, conn.Close()); err != nil {
			return fmt.Errorf("handing the segment out: %w", err)
		}
	}
}

// vppSegment returns a segment with one entry of combined counters, of a VPP without worker threads.
func vppSegment() []byte {
	b := make([]byte, vppSize)
	put := func(at int, word uint64) { binary.NativeEndian.PutUint64(b[at:], word) }
	vector := func(at, length int) uint64 {
		put(at-vppWord, uint64(length))
		return vppBase + uint64(at)
	}
	for i, word := range []uint64{
		vppVersion,
		vppBase,
		vppEpoch,
		0, // no change is in progress
		vector(vppDirectory, 1),
		0, // older versions had a vector of errors
	} {
		put(i*vppWord, word)
	}

	binary.NativeEndian.PutUint32(b[vppDirectory:], vppCombined)
	put(vppDirectory+vppWord, vector(vppThreads, 1))
	copy(b[vppDirectory+2*vppWord:], vppName)
	put(vppThreads, vector(vppCounters, counters))
	for i := range counters {
		put(vppCounters+2*vppWord*i, packetsOf(i))
		put(vppCounters+2*vppWord*i+vppWord, bytesOf(i))
	}
	return b
}
