package flow

import "fmt"

// Options has the other fields of a [Flow].
type Options struct {
	Priority  uint16
	Direction Direction
	Action    Action
	Interface string
	Latency   bool
	Backend   Backend
	Labels    map[string]string
}

// Parse returns a flow with the given name and the match of text, which [ParseMatch] parses. Without [Options] it counts
// received packets on every interface. The returned flow is valid.
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

// MustParse is like [Parse] but panics on error. Use it for flows written in the program.
func MustParse(name, text string, options ...Options) Flow {
	f, err := Parse(name, text, options...)
	if err != nil {
		panic("flow: " + err.Error())
	}
	return f
}
