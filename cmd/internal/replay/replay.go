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
	// Direction of the packets. A capture does not tell it.
	Direction flow.Direction
	// Interface on which the packets were seen. Empty means the name in the capture. Only pcapng has one.
	Interface string
	// Progress is called after each batch, from the goroutine of Run. May be nil.
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
	Counts    []Count // by flow
	Unmatched Count   // records matched by no flow
	Records   Count   // all records
	Cut       uint64  // records cut by the capture: headers after the cut count as incomplete
	Linear    uint64  // records left to the linear matcher, because the kernel takes no frame of their length
	// NoBPF is why the linear matcher decided all records. Nil if the classifier decided.
	NoBPF error
	// Err is why the capture was not read to its end, or nil. The counts include all records before the fault.
	Err error
}

// Run loads the flows and replays the capture r. See [Decider.Replay].
func Run(ctx context.Context, r io.Reader, o Options) (*Report, error) {
	d, err := NewDecider(o.Flows, o.Logger)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Replay(ctx, r, o)
}

// Replay counts the records of the capture r by the flows of the decider, and ignores o.Flows. It returns an error if r
// does not begin like a capture, or when ctx ends. A later fault in the capture is Report.Err, beside the counts up to
// it. When ctx ends, a goroutine may stay blocked in r.Read.
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

// record counts one record. Normally the classifier counts it, and finish reads the counters at the end. But it would
// count a cut record with the cut length, so for these we only ask for the verdict and count here.
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

// finish adds the classifier's counts, and computes the unmatched rest.
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
