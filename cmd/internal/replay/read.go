package replay

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/flowtally/flowtally/cmd/internal/capture"
)

// errHead: the file does not begin as a capture that can be read.
var errHead = errors.New("reading a capture")

// batch is records with the memory of their frames, which is used again.
type batch struct {
	records []capture.Record
	data    []byte
	err     error // behind the records: io.EOF, or the reason why the capture ends here
}

// A batch is full with this many bytes, or records.
const (
	batchBytes   = 1 << 20
	batchRecords = 4096
)

// reading is a goroutine that fills one batch while its caller counts the other.
type reading struct {
	full, free chan *batch
}

// startReading reads ahead of its caller, who gives a counted batch back to free. It ends with ctx.
func startReading(ctx context.Context, r io.Reader) reading {
	read := reading{full: make(chan *batch), free: make(chan *batch, 2)}
	read.free <- new(batch)
	read.free <- new(batch)
	go read.run(ctx, r)
	return read
}

// run fills batches until the capture ends. The last batch has the reason as its error.
func (read reading) run(ctx context.Context, r io.Reader) {
	in, err := capture.Open(r)
	if err != nil {
		err = fmt.Errorf("%w: %w", errHead, err)
	}
	for {
		var b *batch
		select {
		case b = <-read.free:
		case <-ctx.Done():
			return
		}

		b.err = err
		if err == nil {
			b.fill(in)
			err = b.err
		}

		select {
		case read.full <- b:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// fill reads records until the batch is full or the capture ends.
func (b *batch) fill(in *capture.Reader) {
	b.records, b.data = b.records[:0], b.data[:0]
	if cap(b.data) > 4*batchBytes {
		b.data = nil // a record was longer than all others
	}
	for len(b.data) < batchBytes && len(b.records) < batchRecords {
		r, err := in.Next()
		if err != nil {
			b.err = err
			return
		}
		at := len(b.data)
		b.data = append(b.data, r.Data...) // records before may keep the memory that append has left
		r.Data = b.data[at:len(b.data):len(b.data)]
		b.records = append(b.records, r)
	}
}
