package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// parseMatch is flow.ParseMatch with each mistake marked in the text.
func parseMatch(text string) (flow.Match, error) {
	m, err := flow.ParseMatch(text)
	var mistakes flow.ParseErrors
	if !errors.As(err, &mistakes) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
		return m, err
	}
	marks := []rune(strings.Repeat(" ", len([]rune(text))+1))
	for _, e := range mistakes {
		marks[len([]rune(text[:min(e.Offset, len(text))]))] = '^'
	}
	return m, fmt.Errorf("%w\n  %s\n  %s", err, text, strings.TrimRight(string(marks), " "))
}

// placementJSON is one flow in the JSON of flows.
type placementJSON struct {
	Name      string            `json:"name"`
	Match     string            `json:"match"`
	Priority  uint16            `json:"priority"`
	Direction string            `json:"direction"`
	Action    string            `json:"action"`
	Interface string            `json:"interface"`
	Asked     string            `json:"asked_backend"` // of the flow itself; "" where it leaves that to the instance
	Labels    map[string]string `json:"labels"`
	Backend   string            `json:"backend"`
	Device    string            `json:"device"`
	Mode      string            `json:"mode"`
	Rejected  []rejectionJSON   `json:"rejected"`

	standingJSON // of its counter, as the mirror shows it
}

type rejectionJSON struct {
	Backend string `json:"backend"`
	Reason  string `json:"reason"`
}

// printPlacements prints where flows are counted that were added to an instance, and why not
// elsewhere; all are the rejections of every flow there now. of says how their counters stand,
// as JSON.
func printPlacements(w io.Writer, asJSON bool, placements []dataplane.Placement, all [][]dataplane.Rejection, of standings) error {
	if !asJSON {
		_, err := io.WriteString(w, renderPlacementsBeside(placements, all))
		return err
	}
	return printJSON(w, struct {
		Schema int             `json:"schema"`
		Flows  []placementJSON `json:"flows"`
	}{1, of.join(placementsJSON(placements))})
}

// printFlows is printPlacements with what is not as it should be behind it.
func printFlows(w io.Writer, asJSON bool, placements []dataplane.Placement, conditions []dataplane.Condition, now time.Time, of standings) error {
	if !asJSON {
		return printAbove(w, renderPlacements(placements), conditions, now)
	}
	return printJSON(w, struct {
		Schema     int             `json:"schema"`
		Flows      []placementJSON `json:"flows"`
		Conditions []conditionJSON `json:"conditions"`
	}{1, of.join(placementsJSON(placements)), conditionsJSON(conditions)})
}

func placementsJSON(placements []dataplane.Placement) []placementJSON {
	flows := make([]placementJSON, len(placements))
	for i, p := range placements {
		rejected := make([]rejectionJSON, len(p.Rejected))
		for k, r := range p.Rejected {
			rejected[k] = rejectionJSON(r)
		}
		flows[i] = placementJSON{
			Name: p.Flow.Name, Match: p.Flow.Match.String(), Priority: p.Flow.Priority,
			Direction: word(p.Flow.Direction), Action: word(p.Flow.Action), Interface: p.Flow.Interface, Asked: p.Flow.Backend, Labels: labelsJSON(p.Flow.Labels),
			Backend: p.Source.Backend, Device: p.Source.Device, Mode: p.Source.Mode, Rejected: rejected,
		}
	}
	return flows
}

// renderPlacements returns a line for each flow, with the reasons of the backends that do not
// count it below; a reason that holds for all of several flows stands once, at the end.
func renderPlacements(placements []dataplane.Placement) string {
	return renderPlacementsBeside(placements, rejectionsOf(placements))
}

// rejectionsOf are the rejections of each flow.
func rejectionsOf(placements []dataplane.Placement) [][]dataplane.Rejection {
	all := make([][]dataplane.Rejection, len(placements))
	for i, p := range placements {
		all[i] = p.Rejected
	}
	return all
}

// renderPlacementsBeside is renderPlacements of some flows of an instance; all are the
// rejections of every one of it. What every one has is not these flows' news, and is
// said at the end where all are shown.
func renderPlacementsBeside(placements []dataplane.Placement, all [][]dataplane.Rejection) string {
	shared := sharedRejections(all)
	t := table{heading: []string{"FLOW", ">PRIO", "DIRECTION", "ACTION", "COUNTED BY", "MATCH"}}
	for _, p := range placements {
		t.add(p.Flow.Name, fmt.Sprint(p.Flow.Priority), word(p.Flow.Direction), word(p.Flow.Action),
			sourceText(p.Source), p.Flow.Match.String())
		if p.Flow.Backend != "" {
			t.note("  asks for " + p.Flow.Backend)
		}
		for _, k := range slices.Sorted(maps.Keys(p.Flow.Labels)) {
			t.note("  label " + k + "=" + p.Flow.Labels[k])
		}
		for _, r := range p.Rejected {
			if !slices.Contains(shared, r) {
				t.note("  not " + r.Backend + ": " + r.Reason)
			}
		}
	}
	if len(placements) < len(all) {
		return t.render()
	}
	return t.render() + renderShared(shared)
}

// renderShared says of what counts none of several, and why.
func renderShared(shared []dataplane.Rejection) (text string) {
	for _, r := range shared {
		text += "none by " + r.Backend + ": " + r.Reason + "\n"
	}
	return text
}

// sharedRejections are those of every one of several flows, or queue pairs.
func sharedRejections(all [][]dataplane.Rejection) (shared []dataplane.Rejection) {
	if len(all) < 2 {
		return nil
	}
	for _, r := range all[0] {
		if !slices.ContainsFunc(all, func(rejected []dataplane.Rejection) bool { return !slices.Contains(rejected, r) }) {
			shared = append(shared, r)
		}
	}
	return shared
}

// sourceText names what counts a flow: "xdp eth0,eth1 native,generic".
func sourceText(s dataplane.Source) string {
	return orDash(strings.Join(strings.Fields(s.Backend+" "+s.Device+" "+s.Mode), " "))
}

// word returns the text form of a direction or an action.
func word(v interface{ MarshalText() ([]byte, error) }) string {
	text, err := v.MarshalText()
	if err != nil {
		return "?"
	}
	return string(text)
}
