package replay

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/oracle"
	"github.com/flowtally/flowtally/probe"
)

// Packet is a frame on one side of one interface.
type Packet = oracle.Packet

// Verdict is the decision about a packet.
type Verdict struct {
	Flow   int  // the index of the flow, or -1 if none matches
	Drop   bool // the flow drops the packet
	Linear bool // decided by the linear matcher rather than the classifier
}

// Decider decides packets by a set of flows.
type Decider struct {
	flows  []flow.Flow
	class  *xdp.Classifier // nil: the machine cannot load BPF
	noBPF  error
	linear *oracle.Matcher
	others []Count // by flow: the part of the classifier's counts from before begin, and from Decide
}

// NewDecider loads the flows into the classifier. If this process cannot load BPF, for want of a privilege or of a kernel
// feature, the linear matcher decides, and NoBPF returns the reason. Too many flows for the classifier are an error, and so is a
// flow with a named set: the decider has no elements.
func NewDecider(flows []flow.Flow, log *slog.Logger) (*Decider, error) {
	for _, f := range flows {
		if err := f.Match.RefuseNamedSets(); err != nil {
			return nil, fmt.Errorf("flow %q: %w", f.Name, err)
		}
	}
	d := &Decider{flows: flows, linear: oracle.New(flows), others: make([]Count, len(flows))}
	d.class, d.noBPF = xdp.NewClassifier(flows, log)
	if d.noBPF == nil {
		// A kernel may load the program, but lack BPF_PROG_TEST_RUN for it. Only a first run shows that.
		_, _, d.noBPF = d.class.Decide(make([]byte, xdp.MinFrame), xdp.Side{})
	}
	if d.noBPF != nil && !cannotLoad(d.noBPF) {
		return nil, errors.Join(d.noBPF, d.Close())
	}
	return d, nil
}

// cannotLoad reports whether the machine caused an error of loading, rather than the flows.
func cannotLoad(err error) bool {
	return errors.Is(err, dataplane.ErrPermission) || errors.Is(err, probe.ErrNotSupported) || unsupported(err)
}

// NoBPF returns the reason why the linear matcher decides, or nil.
func (d *Decider) NoBPF() error { return d.noBPF }

// Decide returns the verdict about one packet. It takes longer than count, because it must find out which counter the
// classifier incremented.
func (d *Decider) Decide(p Packet) (Verdict, error) {
	if d.noBPF != nil || !runs(p.Frame) {
		return d.Linear(p), nil
	}

	i, drop, err := d.class.Decide(p.Frame, side(p))
	if err != nil {
		if refusesLength(err) {
			return d.Linear(p), nil
		}
		return Verdict{}, err
	}
	if i >= 0 {
		d.others[i].add(len(p.Frame)) // the classifier counts each run, so addCounts must subtract this one
	}
	return Verdict{Flow: i, Drop: drop}, nil
}

// Linear returns the verdict of the linear matcher.
func (d *Decider) Linear(p Packet) Verdict {
	i, ok := d.linear.Match(p)
	if !ok {
		return Verdict{Flow: -1, Linear: true}
	}
	return Verdict{Flow: i, Drop: d.flows[i].Action == flow.Drop, Linear: true}
}

// begin makes addCounts start at 0. It does not reset the classifier, but remembers its current counts.
func (d *Decider) begin() error {
	clear(d.others)
	counts := make([]Count, len(d.flows))
	err := d.addCounts(counts)
	d.others = counts
	return err
}

// count has the classifier count a packet. It returns false if the kernel runs no program on a frame of this length.
func (d *Decider) count(p Packet) (bool, error) {
	if !runs(p.Frame) {
		return false, nil
	}
	err := d.class.Count(p.Frame, side(p))
	if err != nil && refusesLength(err) {
		return false, nil
	}
	return err == nil, err
}

// runs reports whether any kernel runs a program on a frame of this length. Some kernels refuse more lengths.
func runs(frame []byte) bool { return len(frame) >= xdp.MinFrame && len(frame) <= xdp.MaxFrame }

func side(p Packet) xdp.Side {
	return xdp.Side{Interface: p.Interface, Direction: p.Direction, Layer3: p.Layer3}
}

// addCounts adds the counts made by count since begin.
func (d *Decider) addCounts(counts []Count) error {
	if d.noBPF != nil {
		return nil
	}
	packets := make([]uint64, len(counts))
	bytes := make([]uint64, len(counts))
	if err := d.class.Read(packets, bytes); err != nil {
		return err
	}
	for i := range counts {
		counts[i].Packets += packets[i] - d.others[i].Packets
		counts[i].Bytes += bytes[i] - d.others[i].Bytes
	}
	return nil
}

// Close frees the classifier. Idempotent.
func (d *Decider) Close() error {
	if d.class == nil {
		return nil
	}
	return d.class.Close()
}
