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

// Added prints where the added flows are counted, and why not elsewhere. statuses has the status of their counters, for
// JSON.
func Added(w io.Writer, asJSON bool, placements []dataplane.Placement, statuses Statuses) error {
	if !asJSON {
		_, err := io.WriteString(w, renderAdded(placements))
		return err
	}
	flows, _ := placementsJSON(placements, nil)
	return format.JSON(w, AddedJSON{1, statuses.join(flows)})
}

// AddedJSON is the output of flows add -o json. Programs read it: fields are only added.
type AddedJSON struct {
	Schema int             `json:"schema"`
	Flows  []placementJSON `json:"flows"` // that were added
}

// Flows prints the flows of an instance, or sums of them if s asks for sums, and the conditions below. JSON also has the
// status of each flow's counter, from statuses, and the cost of a packet.
func Flows(w io.Writer, asJSON bool, s *selection.Selection, placements []dataplane.Placement, conditions []dataplane.Condition, now time.Time, statuses Statuses, packet *dataplane.Cost) error {
	switch {
	case !asJSON && s.Sums():
		return printAbove(w, renderFlowSums(sumFlows(s, placements)), conditions, now)
	case !asJSON:
		return printAbove(w, renderPlacements(placements), conditions, now)
	}

	out := FlowsJSON{
		Schema:     1,
		Flows:      []placementJSON{},
		Reasons:    []string{},
		Conditions: conditionsJSON(conditions),
		Cost:       cost.JSON(packet),
	}
	if s.Sums() {
		for _, sum := range sumFlows(s, placements) {
			out.Sums = append(out.Sums, sum.json())
		}
		return format.JSON(w, out)
	}
	flows, reasons := placementsJSON(placements, severalTimes(placements))
	out.Flows = statuses.join(flows)
	out.Reasons = reasons
	out.Shared = sharedReasonsJSON(flows)
	return format.JSON(w, out)
}

// FlowsJSON is the output of flows list -o json. Programs read it: fields are only added.
type FlowsJSON struct {
	Schema     int             `json:"schema"`
	Flows      []placementJSON `json:"flows"`   // without any where --sum-by asks for sums
	Reasons    []string        `json:"reasons"` // that several flows share, which have the index here
	Conditions []conditionJSON `json:"conditions"`

	Cost *cost.Fields `json:"cost"` // of a packet in XDP; null: XDP counts no flow

	Shared []sharedReasonJSON `json:"shared,omitempty"` // reasons that several flows share, each with the first of those flows
	Sums   []flowSumJSON      `json:"sums,omitempty"`
}

// severalTimes returns all reasons, each with whether it occurs more than once.
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

// placementsJSON returns the flows, and a table of the reasons in tabled. A flow refers to such a reason by its index, so
// that 100,000 flows do not repeat the text.
func placementsJSON(placements []dataplane.Placement, tabled map[string]bool) (flows []placementJSON, reasons []string) {
	flows = make([]placementJSON, len(placements))
	reasons = []string{}
	indexByReason := make(map[string]int)
	indexOf := func(reason string) int {
		n, known := indexByReason[reason]
		if !known {
			n = len(reasons)
			indexByReason[reason] = n
			reasons = append(reasons, reason)
		}
		return n
	}

	for i, p := range placements {
		rejected := make([]rejectionJSON, len(p.Rejected))
		for k, r := range p.Rejected {
			if !tabled[r.Reason] {
				rejected[k] = rejectionJSON{Backend: r.Backend, Reason: r.Reason}
				continue
			}
			n := indexOf(r.Reason)
			rejected[k] = rejectionJSON{Backend: r.Backend, ReasonIndex: &n}
		}
		flows[i] = placementJSON{
			Name:      p.Flow.Name,
			Match:     p.Flow.Match.String(),
			Priority:  p.Flow.Priority,
			Direction: word(p.Flow.Direction),
			Action:    word(p.Flow.Action),
			Interface: p.Flow.Interface,
			Asked:     p.Flow.Backend,
			Labels:    labelsJSON(p.Flow.Labels),
			Backend:   p.Source.Backend,
			Devices:   devicesJSON(p.Source.Devices),
			Rejected:  rejected,
		}
	}
	return flows, reasons
}

// renderPlacements returns a line for each flow, followed by the reasons why other backends do not count it. A reason
// shared by several flows appears only once, at the end.
func renderPlacements(placements []dataplane.Placement) string {
	all := Rejections(placements)
	names := make([]string, len(placements))
	for i, p := range placements {
		names[i] = p.Flow.Name
	}

	shared := SharedRejections(all)
	groups := shareReasons(names, all)
	atEnd := make(map[dataplane.Rejection]bool)
	for _, r := range shared {
		atEnd[r] = true
	}
	for _, g := range groups {
		atEnd[g.Rejection] = true
	}
	text := renderReasons(placements, func(r dataplane.Rejection) bool { return atEnd[r] })
	return text + renderShared(shared) + renderGroups(groups, "flow", "flows")
}

// renderAdded is renderPlacements for added flows. It leaves out reasons that apply to the whole instance, because
// flowtally run has already logged them.
func renderAdded(placements []dataplane.Placement) string {
	return renderReasons(placements, func(r dataplane.Rejection) bool { return r.Always })
}

// renderReasons returns a line for each flow, followed by its reasons, except for those printed elsewhere.
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

// Rejections returns the rejections of each flow.
func Rejections(placements []dataplane.Placement) [][]dataplane.Rejection {
	all := make([][]dataplane.Rejection, len(placements))
	for i, p := range placements {
		all[i] = p.Rejected
	}
	return all
}

// SharedRejections returns the rejections common to all flows or queue pairs. A single one shares nothing.
func SharedRejections(all [][]dataplane.Rejection) (shared []dataplane.Rejection) {
	if len(all) < 2 {
		return nil
	}
	for _, r := range all[0] {
		lacking := func(rejected []dataplane.Rejection) bool { return !slices.Contains(rejected, r) }
		if !slices.ContainsFunc(all, lacking) {
			shared = append(shared, r)
		}
	}
	return shared
}

// renderShared returns a line for each rejection common to all.
func renderShared(shared []dataplane.Rejection) (text string) {
	for _, r := range shared {
		text += "none by " + r.Backend + ": " + r.Reason + "\n"
	}
	return text
}

// Source returns a source in the notation of the mirror, such as "xdp:eth0,eth1/native,generic", or "-" if nothing counts.
func Source(s dataplane.Source) string {
	if s.IsZero() {
		return "-"
	}
	return s.String()
}

// labels returns the labels of a flow as one cell, such as "site=ams,team=net", or "-".
func labels(of map[string]string) string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(of)) {
		list = append(list, k+"="+of[k])
	}
	return cmp.Or(strings.Join(list, ","), "-")
}

// word returns the text form of a direction or an action.
func word(v interface{ MarshalText() ([]byte, error) }) string {
	text, err := v.MarshalText()
	if err != nil {
		return "?"
	}
	return string(text)
}
