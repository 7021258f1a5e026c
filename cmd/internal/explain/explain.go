package explain

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/flowtally/flowtally/cmd/internal/replay"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/oracle"
)

// ErrPacket: the text does not describe exactly one packet.
var ErrPacket = errors.New("no packet")

// Result says what became of one flow in the decision about a packet.
type Result uint8

const (
	Wins           Result = iota // it counts the packet
	Shadowed                     // it matches, but an earlier flow wins
	NoMatch                      // a field of the packet differs
	OtherSide                    // it counts the other direction
	OtherInterface               // it counts another interface
)

func (r Result) String() string {
	return [...]string{"wins", "shadowed", "no match", "other direction", "other interface"}[r]
}

// Reason is the result of one flow, and why.
type Reason struct {
	Flow   flow.Flow
	Result Result
	Term   flow.Match // of NoMatch: the first part of the match that differs
	Has    flow.Match // of NoMatch: the packet's values for Term
}

// Explanation is the decision about one packet.
type Explanation struct {
	Packet  replay.Packet
	Headers flow.Match // the parsed packet
	Winner  int        // an index of Reasons, or -1
	Drop    bool
	Reasons []Reason // by precedence
	// NoBPF is why the linear matcher decided instead of the classifier. Nil if the classifier decided.
	NoBPF error
	// Short says that the linear matcher decided, because the kernel runs no program on a frame of this length.
	Short bool
}

// ErrDiffers: the classifier and the linear matcher chose different flows. One of them has a bug.
var ErrDiffers = errors.New("the classifier and the linear matcher differ")

// Explainer explains packets by one set of flows.
type Explainer struct {
	flows []flow.Flow
	order []int // indexes of flows, by precedence
	d     *replay.Decider
}

// New loads the flows into the classifier. Callers must close the Explainer.
func New(flows []flow.Flow, log *slog.Logger) (*Explainer, error) {
	d, err := replay.NewDecider(flows, log)
	if err != nil {
		return nil, err
	}
	return &Explainer{flows: flows, order: oracle.Order(flows), d: d}, nil
}

// Close frees the classifier. Idempotent.
func (e *Explainer) Close() error { return e.d.Close() }

// Explain decides a packet. The error is ErrDiffers if the classifier and the linear matcher disagree.
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

// whyNot returns why a flow does not count the packet.
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
