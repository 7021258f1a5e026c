package explain

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/flowtally/flowtally/cmd/internal/replay"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/oracle"
)

// ErrPacket: the text names no packet.
var ErrPacket = errors.New("no packet")

// Result is the part of a flow in the decision about a packet.
type Result uint8

const (
	Wins           Result = iota // counts the packet
	Shadowed                     // matches, and a flow before it wins
	NoMatch                      // a field differs
	OtherSide                    // of the other direction
	OtherInterface               // of another interface
)

func (r Result) String() string {
	return [...]string{"wins", "shadowed", "no match", "other direction", "other interface"}[r]
}

// Reason is the result of one flow, and why.
type Reason struct {
	Flow   flow.Flow
	Result Result
	Term   flow.Match // the first part of the match that the packet does not have
	Has    flow.Match // the packet's values in its place
}

// Explanation is the decision about one packet.
type Explanation struct {
	Packet  replay.Packet
	Headers flow.Match // as they were parsed
	Winner  int        // the place in Reasons, or -1
	Drop    bool
	Reasons []Reason // in the order in which flows win
	// NoBPF is the reason why the linear matcher has decided in place of the classifier; nil if the classifier has.
	NoBPF error
	// Short reports that the kernel runs no program over a frame of this length: the linear matcher has decided.
	Short bool
}

// ErrDiffers: the classifier and the linear matcher have named different flows. One of them has a defect.
var ErrDiffers = errors.New("the classifier and the linear matcher differ")

// Explainer explains packets by one set of flows.
type Explainer struct {
	flows []flow.Flow
	order []int // in which flows win
	d     *replay.Decider
}

// New loads flows.
func New(flows []flow.Flow, log *slog.Logger) (*Explainer, error) {
	d, err := replay.NewDecider(flows, log)
	if err != nil {
		return nil, err
	}
	return &Explainer{flows: flows, order: oracle.Order(flows), d: d}, nil
}

// Close frees the classifier. Idempotent.
func (e *Explainer) Close() error { return e.d.Close() }

// Explain decides a packet. The error satisfies errors.Is(err, ErrDiffers) if the classifier and the linear matcher
// differ.
func (e *Explainer) Explain(p replay.Packet) (*Explanation, error) {
	v, err := e.d.Decide(p)
	if err != nil {
		return nil, err
	}
	if want := e.d.Linear(p); v.Flow != want.Flow || v.Drop != want.Drop {
		return nil, fmt.Errorf("%w about the frame %x: classifier %s, linear matcher %s", ErrDiffers, p.Frame, e.verdict(v), e.verdict(want))
	}

	x := &Explanation{
		Packet:  p,
		Headers: oracle.Describe(p),
		Winner:  -1,
		Drop:    v.Drop,
		NoBPF:   e.d.NoBPF(),
		Short:   v.Linear && e.d.NoBPF() == nil,
	}
	for _, i := range e.order {
		if i == v.Flow {
			x.Winner = len(x.Reasons)
			x.Reasons = append(x.Reasons, Reason{Flow: e.flows[i], Result: Wins})
			continue
		}
		x.Reasons = append(x.Reasons, x.whyNot(e.flows[i]))
	}
	return x, nil
}

// whyNot returns the reason why a flow does not count the packet.
func (x *Explanation) whyNot(f flow.Flow) Reason {
	r := Reason{Flow: f}
	switch {
	case f.Direction != x.Packet.Direction:
		r.Result = OtherSide
		return r
	case f.Interface != "" && f.Interface != x.Packet.Interface:
		r.Result = OtherInterface
		return r
	}

	r.Result = Shadowed
	for _, term := range f.Match.Terms() {
		if !oracle.Matches(term, x.Packet) {
			r.Result = NoMatch
			r.Term = term
			r.Has = term.ValuesIn(x.Headers)
			break
		}
	}
	return r
}

// verdict is a verdict in words.
func (e *Explainer) verdict(v replay.Verdict) string {
	if v.Flow < 0 {
		return "no flow"
	}
	return fmt.Sprintf("flow %q, drop %t", e.flows[v.Flow].Name, v.Drop)
}
