package replay

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/flowtally/flowtally/cmd/internal/capture"
)

// errHead: the file does not begin like a readable capture.
var errHead = errors.New("reading a capture")

// batch has records and the memory of their frames. Batches are reused.
type batch struct {
	records []capture.Record
	data    []byte
	err     error // after the records: io.EOF, or why the capture ends here
}

// A batch is full with so many bytes or records, whichever comes first.
const (
	batchBytes   = 1 << 20
	batchRecords = 4096
)

// reading is a goroutine that fills one batch while the caller counts the other.
type reading struct {
	full, free chan *batch
}

// startReading starts reading batches into full. The caller must return each counted batch to free. The goroutine ends
// with ctx, or after the last batch.
func startReading(ctx context.Context, r io.Reader) reading {
	read := reading{full: make(chan *batch), free: make(chan *batch, 2)}
	read.free <- new(batch)
	read.free <- new(batch)
	go read.run(ctx, r)
	return read
}

// run fills batches until the capture ends. Only the last batch has an error.
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
	b.records = b.records[:0]
	b.data = b.data[:0]
	if cap(b.data) > 4*batchBytes {
		b.data = nil // do not keep the memory of one very long record
	}
	for len(b.data) < batchBytes && len(b.records) < batchRecords {
		r, err := in.Next()
		if err != nil {
			b.err = err
			return
		}
		at := len(b.data)
		b.data = append(b.data, r.Data...) // if append moves the data, earlier records keep the old memory alive
		r.Data = b.data[at:len(b.data):len(b.data)]
		b.records = append(b.records, r)
	}
}
