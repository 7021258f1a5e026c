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

// Parse returns the flow of that name, with the match that [ParseMatch] reads from text. Without [Options] the flow
// counts received packets, on every interface. The flow validates.
func Parse(name, text string, options ...Options) (Flow, error) {
	match, err := ParseMatch(text)
	if err != nil {
		return Flow{}, fmt.Errorf("flow %q: parsing %w", name, err)
	}

	var o Options
	if len(options) > 0 {
		o = options[0]
	}
	f := Flow{
		Name:      name,
		Match:     match,
		Priority:  o.Priority,
		Direction: o.Direction,
		Action:    o.Action,
		Interface: o.Interface,
		Latency:   o.Latency,
		Backend:   o.Backend,
		Labels:    o.Labels,
	}
	if err := f.Validate(); err != nil {
		return Flow{}, err
	}
	return f, nil
}

// MustParse is [Parse] for flows that are written in a program: it panics on an error.
func MustParse(name, text string, options ...Options) Flow {
	f, err := Parse(name, text, options...)
	if err != nil {
		panic("flow: " + err.Error())
	}
	return f
}
