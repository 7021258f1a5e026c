package view

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/cost"
	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/selection"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// placementJSON is one flow in the JSON of flows.
type placementJSON struct {
	Name      string            `json:"name"`
	Match     string            `json:"match"`
	Priority  uint16            `json:"priority"`
	Direction string            `json:"direction"`
	Action    string            `json:"action"`
	Interface string            `json:"interface"`
	Asked     flow.Backend      `json:"asked_backend"` // of the flow itself; "": the backend of the configuration
	Labels    map[string]string `json:"labels"`
	Backend   flow.Backend      `json:"backend"` // "": nothing counts the flow
	Devices   []deviceJSON      `json:"devices"`
	Rejected  []rejectionJSON   `json:"rejected"`

	statusJSON // of its counter, as the mirror shows it
}

// deviceJSON is a device that counts a flow. Its backend differs from the flow's for a flow that has lost an
// RDMA device and is counted by XDP on the interface of that device.
type deviceJSON struct {
	Backend flow.Backend   `json:"backend"`
	Name    string         `json:"name"`
	Mode    dataplane.Mode `json:"mode"`
}

func devicesJSON(devices []dataplane.Device) []deviceJSON {
	out := make([]deviceJSON, len(devices))
	for i, d := range devices {
		out[i] = deviceJSON(d)
	}
	return out
}

// rejectionJSON has a reason or, where several flows share the reason, its index in the table of reasons.
type rejectionJSON struct {
	Backend     string `json:"backend"`
	Reason      string `json:"reason,omitempty"`
	ReasonIndex *int   `json:"reason_index,omitempty"`
}

// Added prints where flows are counted that were added to an instance, and why not elsewhere.
// of says how their counters stand, as JSON.
func Added(w io.Writer, asJSON bool, placements []dataplane.Placement, of Statuses) error {
	if !asJSON {
		_, err := io.WriteString(w, renderAdded(placements))
		return err
	}
	flows, _ := placementsJSON(placements, nil)
	return format.JSON(w, AddedJSON{1, of.join(flows)})
}

// AddedJSON is the output of flows add -o json. Programs read it: fields are only added.
type AddedJSON struct {
	Schema int             `json:"schema"`
	Flows  []placementJSON `json:"flows"` // that were added
}

// Flows prints flows of an instance, or how many of them have each label of s, and below them the instance's
// conditions.
func Flows(w io.Writer, asJSON bool, s *selection.Selection, placements []dataplane.Placement, conditions []dataplane.Condition, now time.Time, of Statuses, packet *dataplane.Cost) error {
	switch {
	case !asJSON && s.Sums():
		return printAbove(w, renderFlowSums(sumFlows(s, placements)), conditions, now)
	case !asJSON:
		return printAbove(w, renderPlacements(placements), conditions, now)
	}
	out := FlowsJSON{Schema: 1, Flows: []placementJSON{}, Reasons: []string{}, Conditions: conditionsJSON(conditions), Cost: cost.JSON(packet)}
	if s.Sums() {
		for _, sum := range sumFlows(s, placements) {
			out.Sums = append(out.Sums, sum.json())
		}
		return format.JSON(w, out)
	}
	flows, reasons := placementsJSON(placements, severalTimes(placements))
	out.Flows, out.Reasons, out.Shared = of.join(flows), reasons, sharedReasonsJSON(flows)
	return format.JSON(w, out)
}

// FlowsJSON is the output of flows list -o json. Programs read it: fields are only added.
type FlowsJSON struct {
	Schema     int             `json:"schema"`
	Flows      []placementJSON `json:"flows"`   // without any where --sum-by asks for sums
	Reasons    []string        `json:"reasons"` // that several flows share, which have the index here
	Conditions []conditionJSON `json:"conditions"`

	Cost *cost.Fields `json:"cost"` // of a packet in XDP; null: XDP counts no flow

	Shared []sharedReasonJSON `json:"shared,omitempty"` // the flows that have each of the reasons
	Sums   []flowSumJSON      `json:"sums,omitempty"`
}

// severalTimes says which reasons more than one flow has.
func severalTimes(placements []dataplane.Placement) map[string]bool {
	several := make(map[string]bool)
	for _, p := range placements {
		for _, r := range p.Rejected {
			_, again := several[r.Reason]
			several[r.Reason] = again
		}
	}
	return several
}

// placementsJSON also returns the table of reasons: those in listed, each once.
func placementsJSON(placements []dataplane.Placement, listed map[string]bool) (flows []placementJSON, reasons []string) {
	flows, reasons = make([]placementJSON, len(placements)), []string{}
	at := make(map[string]int)
	for i, p := range placements {
		rejected := make([]rejectionJSON, len(p.Rejected))
		for k, r := range p.Rejected {
			rejected[k] = rejectionJSON{Backend: r.Backend, Reason: r.Reason}
			if !listed[r.Reason] {
				continue
			}
			n, ok := at[r.Reason]
			if !ok {
				n = len(reasons)
				at[r.Reason], reasons = n, append(reasons, r.Reason)
			}
			rejected[k] = rejectionJSON{Backend: r.Backend, ReasonIndex: &n}
		}
		flows[i] = placementJSON{
			Name: p.Flow.Name, Match: p.Flow.Match.String(), Priority: p.Flow.Priority,
			Direction: word(p.Flow.Direction), Action: word(p.Flow.Action), Interface: p.Flow.Interface, Asked: p.Flow.Backend, Labels: labelsJSON(p.Flow.Labels),
			Backend: p.Source.Backend, Devices: devicesJSON(p.Source.Devices), Rejected: rejected,
		}
	}
	return flows, reasons
}

// renderPlacements returns a line for each flow, with the reasons of the backends that do not
// count it below; a reason that several flows share stands once, at the end.
func renderPlacements(placements []dataplane.Placement) string {
	names, all := make([]string, len(placements)), Rejections(placements)
	for i, p := range placements {
		names[i] = p.Flow.Name
	}
	shared, groups := SharedRejections(all), shareReasons(names, all)
	elsewhere := make(map[dataplane.Rejection]bool)
	for _, r := range shared {
		elsewhere[r] = true
	}
	for _, g := range groups {
		elsewhere[g.Rejection] = true
	}
	return renderReasons(placements, func(r dataplane.Rejection) bool { return elsewhere[r] }) + renderShared(shared) + renderGroups(groups, "flow", "flows")
}

// renderAdded is renderPlacements of flows that were added to an instance. It leaves out the reasons that
// hold for the whole instance, which run logged at the start.
func renderAdded(placements []dataplane.Placement) string {
	return renderReasons(placements, func(r dataplane.Rejection) bool { return r.Always })
}

// Rejections are the rejections of each flow.
func Rejections(placements []dataplane.Placement) [][]dataplane.Rejection {
	all := make([][]dataplane.Rejection, len(placements))
	for i, p := range placements {
		all[i] = p.Rejected
	}
	return all
}

// renderReasons returns the lines of flows, without the reasons that are told elsewhere.
func renderReasons(placements []dataplane.Placement, elsewhere func(dataplane.Rejection) bool) string {
	t := format.Table{Heading: []string{"FLOW", ">PRIO", "DIRECTION", "ACTION", "COUNTED BY"}}
	labelled := slices.ContainsFunc(placements, func(p dataplane.Placement) bool { return len(p.Flow.Labels) > 0 })
	if labelled {
		t.Heading = append(t.Heading, "LABELS")
	}
	t.Heading = append(t.Heading, "MATCH")
	for _, p := range placements {
		row := []string{p.Flow.Name, fmt.Sprint(p.Flow.Priority), word(p.Flow.Direction), word(p.Flow.Action), Source(p.Source)}
		if labelled {
			row = append(row, labels(p.Flow.Labels))
		}
		t.Add(append(row, p.Flow.Match.String())...)
		if p.Flow.Backend != "" {
			t.Note("  asks for " + string(p.Flow.Backend))
		}
		for _, r := range p.Rejected {
			if !elsewhere(r) {
				t.Note("  not " + r.Backend + ": " + r.Reason)
			}
		}
	}
	return t.Render()
}

// labels returns the labels of a flow in one column, "site=ams,team=net", or "-".
func labels(of map[string]string) string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(of)) {
		list = append(list, k+"="+of[k])
	}
	return cmp.Or(strings.Join(list, ","), "-")
}

// renderShared renders the rejections that several flows share.
func renderShared(shared []dataplane.Rejection) (text string) {
	for _, r := range shared {
		text += "none by " + r.Backend + ": " + r.Reason + "\n"
	}
	return text
}

// SharedRejections returns the rejections that several flows, or queue pairs, all have.
func SharedRejections(all [][]dataplane.Rejection) (shared []dataplane.Rejection) {
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

// Source returns a source as the mirror shows it, "xdp:eth0,eth1/native,generic", or "-" where nothing counts.
func Source(s dataplane.Source) string {
	if s.IsZero() {
		return "-"
	}
	return s.String()
}

// word returns the text form of a direction or an action.
func word(v interface{ MarshalText() ([]byte, error) }) string {
	text, err := v.MarshalText()
	if err != nil {
		return "?"
	}
	return string(text)
}
