package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/flowtally/flowtally/cmd/internal/capture"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// Options of a replay.
type Options struct {
	Flows []flow.Flow
	// Direction of the packets of the capture, which do not tell it.
	Direction flow.Direction
	// Interface on which the packets were seen. Empty means the name in the capture, which pcapng has.
	Interface string
	// Progress is called about every MiB, from the goroutine of Run. May be nil.
	Progress func(records uint64)
	Logger   *slog.Logger
}

// Count is packets and bytes, layer 2 without FCS.
type Count struct{ Packets, Bytes uint64 }

func (c *Count) add(length int) {
	c.Packets++
	c.Bytes += uint64(length)
}

// Report is the result of a replay.
type Report struct {
	Counts    []Count // of the flows, in their order
	Unmatched Count   // records that no flow matches
	Records   Count   // all records
	Cut       uint64  // records that the capture has cut: headers behind the cut count as incomplete
	Linear    uint64  // records that the linear matcher has decided, because the kernel takes no frame of their length
	// NoBPF is the reason why the linear matcher has decided all records; nil if the classifier has.
	NoBPF error
	// Err is the reason why the capture was not read to its end; nil if it was. The counts have the records
	// before the fault.
	Err error
}

// Run loads the flows and replays the capture r: see [Decider.Replay].
func Run(ctx context.Context, r io.Reader, o Options) (*Report, error) {
	d, err := NewDecider(o.Flows, o.Logger)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Replay(ctx, r, o)
}

// Replay counts the records of the capture r by the flows of the decider; o.Flows is not read. It returns an error if r
// is no capture, or when ctx ends. The fault of a capture that is broken further behind is Report.Err. When ctx ends, a
// goroutine may stay in r.Read until that returns.
func (d *Decider) Replay(ctx context.Context, r io.Reader, o Options) (*Report, error) {
	if err := d.begin(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	read := startReading(ctx, r)
	rep := &Report{NoBPF: d.NoBPF(), Counts: make([]Count, len(d.flows))}
	c := &counter{Options: o, Report: rep, d: d}
	for {
		var b *batch
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("replaying: %w", context.Cause(ctx))
		case b = <-read.full:
		}

		if err := c.batch(b); err != nil {
			return nil, err
		}
		switch {
		case errors.Is(b.err, errHead):
			return nil, b.err
		case errors.Is(b.err, io.EOF):
			return rep, c.finish()
		case b.err != nil:
			rep.Err = b.err
			return rep, c.finish()
		}
		if o.Progress != nil {
			o.Progress(rep.Records.Packets)
		}
		read.free <- b
	}
}

// counter counts records into a report.
type counter struct {
	Options
	*Report
	d *Decider
}

// batch counts the records of a batch.
func (c *counter) batch(b *batch) error {
	for i := range b.records {
		if err := c.record(&b.records[i]); err != nil {
			return fmt.Errorf("record %d: %w", c.Records.Packets, err)
		}
	}
	return nil
}

// record counts one record. The classifier counts it by itself, and finish reads those counts: but not a record that
// the capture has cut, since the classifier would count the cut length.
func (c *counter) record(r *capture.Record) error {
	cut := r.Length > len(r.Data)
	c.Records.add(r.Length)
	if cut {
		c.Cut++
	}

	p := Packet{Frame: r.Data, Layer3: r.Layer3, Direction: c.Direction, Interface: cmp.Or(c.Interface, r.Interface)}
	if c.NoBPF == nil && !cut {
		counted, err := c.d.count(p)
		if counted || err != nil {
			return err
		}
	}
	v, err := c.d.Decide(p)
	if err != nil {
		return err
	}
	if v.Linear && c.NoBPF == nil {
		c.Linear++
	}
	if v.Flow >= 0 {
		c.Counts[v.Flow].add(r.Length)
	}
	return nil
}

// finish adds what the classifier has counted, and computes the rest.
func (c *counter) finish() error {
	if err := c.d.addCounts(c.Counts); err != nil {
		return err
	}
	c.Unmatched = c.Records
	for _, n := range c.Counts {
		c.Unmatched.Packets -= n.Packets
		c.Unmatched.Bytes -= n.Bytes
	}
	return nil
}
