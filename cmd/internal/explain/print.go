package explain

import (
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/format"
)

// ExplanationJSON is the output of explain -o json. Fields are only added.
type ExplanationJSON struct {
	Schema    int          `json:"schema"`
	Packet    packetJSON   `json:"packet"`
	By        string       `json:"by"`     // xdp or linear
	NoBPF     *string      `json:"no_bpf"` // the reason for linear
	Winner    *string      `json:"winner"`
	Action    *string      `json:"action"`     // of the winner
	OrderSure bool         `json:"order_sure"` // the order among flows of one priority is known
	Flows     []reasonJSON `json:"flows"`
}

type packetJSON struct {
	Headers   string `json:"headers"`
	Bytes     int    `json:"bytes"`
	Hex       string `json:"hex"`
	Layer3    bool   `json:"layer3"`
	Direction string `json:"direction"`
	Interface string `json:"interface"`
}

type reasonJSON struct {
	Name      string  `json:"name"`
	Match     string  `json:"match"`
	Priority  uint16  `json:"priority"`
	Direction string  `json:"direction"`
	Interface string  `json:"interface"`
	Action    string  `json:"action"`
	Result    string  `json:"result"`
	Term      *string `json:"term"`   // the first part of the match that the packet does not have
	Packet    *string `json:"packet"` // the values of the packet in its place; null: the packet has no such header
}

// PrintJSON prints the explanation as JSON. ordered says whether the precedence among flows of one priority is known.
func (x *Explanation) PrintJSON(w io.Writer, ordered bool) error {
	out := ExplanationJSON{
		Schema:    1,
		By:        "xdp",
		OrderSure: ordered || !x.tie(),
		Flows:     make([]reasonJSON, len(x.Reasons)),
		Packet: packetJSON{
			Headers:   x.Headers.String(),
			Bytes:     len(x.Packet.Frame),
			Hex:       hex.EncodeToString(x.Packet.Frame),
			Layer3:    x.Packet.Layer3,
			Direction: x.Packet.Direction.String(),
			Interface: x.Packet.Interface,
		},
	}
	if x.NoBPF != nil {
		text := x.NoBPF.Error()
		out.NoBPF = &text
	}
	if x.NoBPF != nil || x.Short {
		out.By = "linear"
	}
	for i, r := range x.Reasons {
		out.Flows[i] = r.json()
	}
	if x.Winner >= 0 {
		winner := &out.Flows[x.Winner]
		out.Winner = &winner.Name
		out.Action = &winner.Action
	}
	return format.JSON(w, out)
}

func (r Reason) json() reasonJSON {
	j := reasonJSON{
		Name:      r.Flow.Name,
		Match:     r.Flow.Match.String(),
		Priority:  r.Flow.Priority,
		Direction: r.Flow.Direction.String(),
		Interface: r.Flow.Interface,
		Action:    r.Flow.Action.String(),
		Result:    r.Result.String(),
	}
	if r.Result != NoMatch {
		return j
	}
	term := r.Term.String()
	j.Term = &term
	if has, ok := r.has(); ok {
		j.Packet = &has
	}
	return j
}

// has returns the packet's values for the term, and false if the packet lacks some of these fields.
func (r Reason) has() (string, bool) {
	return r.Has.String(), len(r.Has.Terms()) == len(r.Term.Terms())
}

// set returns the field that the term is about and its set of values as text, or nothing if it asks for a single value.
func (r Reason) set() (field, set string, excludes bool) {
	term := r.Term
	if in := term.Inner(); in != nil {
		term = *in
	}
	if len(term.Choices) == 0 {
		return "", "", false
	}
	text := r.Term.String()
	name := " " + term.Choices[0].Field + " "
	at := strings.LastIndex(text, name) + len(name)
	set = text[at:]
	if len(set) > mostOfSet {
		if end := strings.LastIndex(set[:mostOfSet], ","); end > 0 {
			set = set[:end] + ", …}"
		}
	}
	return text[:at-1], set, term.Choices[0].Not
}

// mostOfSet is how many bytes of a set a reason shows. The match has all of it.
const mostOfSet = 60

// tie reports whether another matching flow has the winner's priority, so that only the order decided.
func (x *Explanation) tie() bool {
	return slices.ContainsFunc(x.Reasons, func(r Reason) bool {
		return r.Result == Shadowed && r.Flow.Priority == x.Reasons[x.Winner].Flow.Priority
	})
}

// Print prints the explanation for a person, with the flows by precedence.
func (x *Explanation) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "packet  %s, %s, %s\n", x.Headers, format.Plural(uint64(len(x.Packet.Frame)), "byte", "bytes"), x.Packet.Direction)
	switch {
	case x.Winner < 0:
		b.WriteString("no flow counts it: it passes\n\n")
	case x.Drop:
		fmt.Fprintf(&b, "flow %s counts and drops it\n\n", x.Reasons[x.Winner].Flow.Name)
	default:
		fmt.Fprintf(&b, "flow %s counts it, and it passes\n\n", x.Reasons[x.Winner].Flow.Name)
	}

	t := format.Table{Heading: []string{"FLOW", ">PRIO", "RESULT", "WHY", "MATCH"}}
	for _, r := range x.Reasons {
		t.Add(r.Flow.Name, fmt.Sprint(r.Flow.Priority), r.Result.String(), x.why(r), r.Flow.Match.String())
	}
	b.WriteString(t.Render())
	_, err := io.WriteString(w, b.String())
	return err
}

// why returns the reason for the result of a flow, for a person.
func (x *Explanation) why(r Reason) string {
	switch r.Result {
	case Wins:
		return "of the flows that match, the first by priority and then by order"
	case Shadowed:
		w := x.Reasons[x.Winner].Flow
		if w.Priority == r.Flow.Priority {
			return fmt.Sprintf("%s of the same priority was added first", w.Name)
		}
		return fmt.Sprintf("%s has priority %d, which goes before %d", w.Name, w.Priority, r.Flow.Priority)
	case OtherSide:
		return "the packet is on " + x.Packet.Direction.String()
	case OtherInterface:
		if x.Packet.Interface == "" {
			return "--interface names the interface of the packet"
		}
		return "the packet is on " + x.Packet.Interface
	}
	has, ok := r.has()
	field, set, excludes := r.set()
	value := strings.TrimPrefix(has, field+" ")
	switch {
	case set != "" && !ok:
		return fmt.Sprintf("%s %s, which the packet does not have", field, set)
	case excludes:
		return fmt.Sprintf("%s is %s, which %s excludes", field, value, set)
	case set != "":
		return fmt.Sprintf("%s is %s, which is not in %s", field, value, set)
	case ok:
		return fmt.Sprintf("%s, the packet has %s", r.Term, has)
	}
	return fmt.Sprintf("%s, which the packet does not have", r.Term)
}

// Notes returns what the user must know about how the decision came about.
func (x *Explanation) Notes() (notes []string) {
	if x.NoBPF != nil {
		notes = append(notes, fmt.Sprintf("the linear matcher has decided, not the classifier, because this process cannot load BPF: %v", x.NoBPF))
	}
	if x.Short {
		notes = append(notes, "the linear matcher has decided, not the classifier, because the kernel runs no program over a frame of this length")
	}
	return notes
}
