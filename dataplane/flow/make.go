package flow

import "fmt"

// Options are the fields of a [Flow] besides its name and its match.
type Options struct {
	Priority  uint16
	Direction Direction
	Action    Action
	Interface string
	Latency   bool
	Backend   Backend
	Labels    map[string]string
}

// Parse returns the flow of that name, with the match that [ParseMatch] reads from text. The flow validates.
func Parse(name, text string, o Options) (Flow, error) {
	match, err := ParseMatch(text)
	if err != nil {
		return Flow{}, fmt.Errorf("flow %q: parsing %w", name, err)
	}
	f := Flow{
		Name: name, Match: match, Priority: o.Priority, Direction: o.Direction, Action: o.Action,
		Interface: o.Interface, Latency: o.Latency, Backend: o.Backend, Labels: o.Labels,
	}
	if err := f.Validate(); err != nil {
		return Flow{}, err
	}
	return f, nil
}

// MustParse is [Parse] with the zero Options, for flows that are written in a program: it panics on an error.
// The flow counts received packets, on every interface.
func MustParse(name, text string) Flow { return MustParseWith(name, text, Options{}) }

// MustParseWith is [Parse] for flows that are written in a program: it panics on an error.
func MustParseWith(name, text string, o Options) Flow {
	f, err := Parse(name, text, o)
	if err != nil {
		panic("flow: " + err.Error())
	}
	return f
}
