// Package cost prints what a packet costs in XDP: typically, and at worst if an attacker chooses the packet.
package cost

import (
	"fmt"
	"math"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/dataplane"
)

// Fields are the JSON of a cost. Programs read them: fields are only added. Nodes and rules are the same on every host,
// ns are an estimate.
type Fields struct {
	Typical typicalJSON `json:"typical"`
	Worst   worstJSON   `json:"worst"`
	Bound   int         `json:"bound"` // of nodes and rules together: xdp.worst_cost
}

// typicalJSON has means over packets that the flows match.
type typicalJSON struct {
	Nodes float64 `json:"nodes"`
	Rules float64 `json:"rules"`
	NS    float64 `json:"ns"`
}

type worstJSON struct {
	IPv4  stepsJSON `json:"ipv4"`
	IPv6  stepsJSON `json:"ipv6"`
	Other stepsJSON `json:"other"`
}

type stepsJSON struct {
	Nodes int     `json:"nodes"`
	Rules int     `json:"rules"`
	NS    float64 `json:"ns"`
}

// JSON returns the fields of a cost; nil without one.
func JSON(c *dataplane.Cost) *Fields {
	if c == nil {
		return nil
	}
	return &Fields{
		Typical: typicalJSON{round(c.Nodes), round(c.Rules), math.Round(c.NS)},
		Worst:   worstJSON{stepsOf(c.IPv4), stepsOf(c.IPv6), stepsOf(c.Other)},
		Bound:   c.Bound,
	}
}

func stepsOf(w dataplane.WorstCost) stepsJSON { return stepsJSON{w.Nodes, w.Rules, math.Round(w.NS)} }

func round(x float64) float64 { return math.Round(10*x) / 10 }

// Line returns the cost in one line.
func Line(c *dataplane.Cost) string {
	w := c.Worst()
	return fmt.Sprintf("about %.0f ns a packet, %s at worst (%s)", c.NS, about(w.NS), steps(w))
}

// Text returns a line for the typical cost, and a line with the worst cost of each kind of frame. The values begin at
// column width.
func Text(c *dataplane.Cost, width int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-*s%.1f nodes and %.1f rules a packet, about %.0f ns\n", width, "typical", c.Nodes, c.Rules, c.NS)
	worst := func(frames string, w dataplane.WorstCost) {
		fmt.Fprintf(&b, "%-*s%s: %s, about %s; xdp.worst_cost allows %d\n", width, "worst", frames, steps(w), about(w.NS), c.Bound)
	}
	worst("IPv4", c.IPv4)
	worst("IPv6", c.IPv6)
	worst("other frames", c.Other)
	return b.String()
}

// steps returns the nodes and rules visited by a packet, in words.
func steps(w dataplane.WorstCost) string {
	return format.Plural(uint64(w.Nodes), "node", "nodes") + " and " + format.Plural(uint64(w.Rules), "rule", "rules")
}

// about returns a time in a unit that shows at least two digits.
func about(ns float64) string {
	if ns < 10_000 {
		return fmt.Sprintf("%.0f ns", ns)
	}
	return fmt.Sprintf("%.0f us", ns/1000)
}
