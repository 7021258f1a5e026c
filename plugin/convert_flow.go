package plugin

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/flowtally/flowtally/dataplane/flow"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// maxMatchText limits the text of one match. A set of 4,096 IPv6 addresses, the most that it may have, takes 160 KiB.
const maxMatchText = 1 << 20

// maxName limits the names that errors quote. It is far above the limit of flow.Validate, which gives a better error.
const maxName = 1024

var (
	directions = map[flow.Direction]pluginv1.Direction{
		flow.Ingress: pluginv1.Direction_DIRECTION_INGRESS,
		flow.Egress:  pluginv1.Direction_DIRECTION_EGRESS,
	}
	actions = map[flow.Action]pluginv1.Action{
		flow.Count: pluginv1.Action_ACTION_COUNT,
		flow.Drop:  pluginv1.Action_ACTION_DROP,
	}
)

// flowsToProto validates the flows first, because the text of an invalid match could parse as a different match.
func flowsToProto(flows []flow.Flow) ([]*pluginv1.Flow, error) {
	out := make([]*pluginv1.Flow, len(flows))
	var errs []error
	for i := range flows {
		if err := checkFlow(&flows[i]); err != nil {
			errs = append(errs, err)
			continue
		}
		out[i] = flowToProto(&flows[i])
	}
	if errs != nil {
		return nil, invalid("%w", errors.Join(errs...))
	}
	return out, nil
}

// checkFlow validates a flow and checks that its strings are UTF-8, as protobuf requires.
func checkFlow(f *flow.Flow) error {
	if err := f.Validate(); err != nil {
		return err
	}
	for _, s := range []string{f.Name, f.Interface} {
		if !utf8.ValidString(s) {
			return fmt.Errorf("flow %q: %q is not UTF-8", f.Name, s)
		}
	}
	for k, v := range f.Labels {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return fmt.Errorf("flow %q: label %q: %q is not UTF-8", f.Name, k, v)
		}
	}
	return nil
}

func flowToProto(f *flow.Flow) *pluginv1.Flow {
	return &pluginv1.Flow{
		Name:      f.Name,
		Match:     f.Match.String(),
		Priority:  uint32(f.Priority),
		Direction: directions[f.Direction],
		Action:    actions[f.Action],
		Interface: f.Interface,
		Latency:   f.Latency,
		Labels:    maps.Clone(f.Labels),
		Backend:   string(f.Backend),
	}
}

// flowsFromProto validates the flows, and its error reports every invalid one.
func flowsFromProto(in []*pluginv1.Flow) ([]flow.Flow, error) {
	out := slices.Grow([]flow.Flow(nil), len(in))
	var errs []error
	for i, p := range in {
		f, err := flowFromProto(p)
		if err != nil {
			errs = append(errs, fmt.Errorf("flow %d: %w", i, err))
			continue
		}
		out = append(out, f)
	}
	if errs != nil {
		return nil, invalid("%w", errors.Join(errs...))
	}
	return out, nil
}

func flowFromProto(p *pluginv1.Flow) (flow.Flow, error) {
	if p == nil {
		return flow.Flow{}, errors.New("no flow in the message")
	}
	f := flow.Flow{
		Name:      p.Name,
		Priority:  uint16(p.Priority),
		Interface: p.Interface,
		Latency:   p.Latency,
		Backend:   flow.Backend(p.Backend),
	}
	if len(p.Labels) > 0 {
		f.Labels = p.Labels
	}

	if len(p.Name) > maxName {
		return flow.Flow{}, fmt.Errorf("%q…: a name of %d bytes is too long: use %d at most",
			strings.ToValidUTF8(p.Name[:60], ""), len(p.Name), maxName) // errors quote names
	}

	var errs []error
	if p.Priority > math.MaxUint16 {
		errs = append(errs, fmt.Errorf("priority %d is above %d", p.Priority, math.MaxUint16))
	}
	var ok bool
	if f.Direction, ok = keyOf(directions, p.Direction); !ok {
		errs = append(errs, fmt.Errorf("direction %d is not known", p.Direction))
	}
	if f.Action, ok = keyOf(actions, p.Action); !ok {
		errs = append(errs, fmt.Errorf("action %d is not known", p.Action))
	}
	if len(p.Match) > maxMatchText {
		errs = append(errs, fmt.Errorf("match of %d bytes is longer than %d", len(p.Match), maxMatchText))
	} else {
		var err error
		if f.Match, err = flow.ParseMatch(p.Match); err != nil {
			errs = append(errs, err)
		}
	}

	if errs == nil {
		withoutMatch := f
		withoutMatch.Match = flow.Match{} // ParseMatch has validated it
		if err := withoutMatch.Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	if errs != nil {
		return flow.Flow{}, fmt.Errorf("%.80q: %w", p.Name, errors.Join(errs...))
	}
	return f, nil
}
