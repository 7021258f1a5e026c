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

// Reason is the part of one flow, and why.
type Reason struct {
	Flow   flow.Flow
	Result Result
	// Term is the first part of the match that the packet does not have, and Has the packet's values in its place.
	Term, Has flow.Match
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

// Explain decides a packet. The error satisfies errors.Is(err, ErrDiffers) if the classifier and the linear matcher differ.
func (e *Explainer) Explain(p replay.Packet) (*Explanation, error) {
	v, err := e.d.Decide(p)
	if err != nil {
		return nil, err
	}
	if want := e.d.Linear(p); v.Flow != want.Flow || v.Drop != want.Drop {
		return nil, fmt.Errorf("%w about the frame %x: classifier %s, linear matcher %s", ErrDiffers, p.Frame, e.verdict(v), e.verdict(want))
	}
	x := &Explanation{Packet: p, Headers: oracle.Describe(p), Winner: -1, Drop: v.Drop, NoBPF: e.d.NoBPF(), Short: v.Linear && e.d.NoBPF() == nil}
	for _, i := range e.order {
		r := Reason{Flow: e.flows[i]}
		switch {
		case i == v.Flow:
			x.Winner = len(x.Reasons)
		case r.Flow.Direction != p.Direction:
			r.Result = OtherSide
		case r.Flow.Interface != "" && r.Flow.Interface != p.Interface:
			r.Result = OtherInterface
		default:
			r.Result = Shadowed
			for _, t := range r.Flow.Match.Terms() {
				if !oracle.Matches(t, p) {
					r.Result, r.Term, r.Has = NoMatch, t, t.ValuesIn(x.Headers)
					break
				}
			}
		}
		x.Reasons = append(x.Reasons, r)
	}
	return x, nil
}

func (e *Explainer) verdict(v replay.Verdict) string {
	if v.Flow < 0 {
		return "no flow"
	}
	return fmt.Sprintf("flow %q, drop %t", e.flows[v.Flow].Name, v.Drop)
}
