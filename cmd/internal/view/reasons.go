package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/dataplane"
)

// mostNames is the most names to list with a reason shared by many objects.
const mostNames = 8

// reasonGroup is a reason shared by several objects.
type reasonGroup struct {
	dataplane.Rejection
	names []string
}

// shareReasons returns the rejections shared by several objects, but not by all, in the order of their first objects.
// all[i] has the rejections of the object names[i].
func shareReasons(names []string, all [][]dataplane.Rejection) (out []reasonGroup) {
	indexByRejection := make(map[dataplane.Rejection]int)
	for i, rejected := range all {
		for _, r := range rejected {
			n, known := indexByRejection[r]
			if !known {
				n = len(out)
				indexByRejection[r] = n
				out = append(out, reasonGroup{Rejection: r})
			}
			g := &out[n]
			if len(g.names) == 0 || g.names[len(g.names)-1] != names[i] { // an object may have the same reason twice
				g.names = append(g.names, names[i])
			}
		}
	}
	return slices.DeleteFunc(out, func(g reasonGroup) bool { return len(g.names) < 2 || len(g.names) == len(all) })
}

// listNames lists the first names, and says how many others there are.
func listNames(names []string) string {
	if len(names) <= mostNames+1 { // "… 1 more" would be as long as the name
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:mostNames], ", ") + fmt.Sprintf(", … %d more", len(names)-mostNames)
}

// renderGroups returns a line for each shared reason.
func renderGroups(groups []reasonGroup, one, many string) (text string) {
	for _, g := range groups {
		text += fmt.Sprintf("not by %s, %s (%s): %s\n",
			g.Backend, format.Plural(uint64(len(g.names)), one, many), listNames(g.names), format.PrintableLines(g.Reason))
	}
	return text
}

// sharedReasonJSON is a reason that several flows share, with the first of the flows.
type sharedReasonJSON struct {
	Backend     string   `json:"backend"`
	ReasonIndex int      `json:"reason_index"` // in the table of reasons
	Flows       int      `json:"flows"`        // that have the reason
	Names       []string `json:"names"`        // of the first flows, at most 8
}

// sharedReasonsJSON groups the flows by the reasons in the table.
func sharedReasonsJSON(flows []placementJSON) (out []sharedReasonJSON) {
	type id struct {
		backend string
		reason  int
	}
	indexByID := make(map[id]int)
	for _, f := range flows {
		for _, r := range f.Rejected {
			if r.ReasonIndex == nil {
				continue
			}
			k := id{r.Backend, *r.ReasonIndex}
			n, known := indexByID[k]
			if !known {
				n = len(out)
				indexByID[k] = n
				out = append(out, sharedReasonJSON{Backend: r.Backend, ReasonIndex: *r.ReasonIndex, Names: []string{}})
			}

			s := &out[n]
			s.Flows++
			if len(s.Names) < mostNames {
				s.Names = append(s.Names, f.Name)
			}
		}
	}
	return out
}
