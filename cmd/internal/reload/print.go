package reload

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/flowtally/flowtally/cmd/internal/cost"
	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/dataplane"
)

// fieldJSON is the change of one field of a flow, or of one setting.
type fieldJSON struct {
	Field string `json:"field"`
	From  string `json:"from"`
	To    string `json:"to"`
}

// changeJSON is the change of one flow.
type changeJSON struct {
	Name   string      `json:"name"`
	Fields []fieldJSON `json:"fields"`
	Anew   bool        `json:"anew"` // the total begins at 0
}

// renameJSON is a flow that got another name.
type renameJSON struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Changes is the output of apply -o json.
type Changes struct {
	Schema    int          `json:"schema"`
	Instance  string       `json:"instance"`
	DryRun    bool         `json:"dry_run"`  // nothing was changed
	Settings  []fieldJSON  `json:"settings"` // by their names in a configuration file
	Added     []string     `json:"added"`
	Removed   []string     `json:"removed"`
	Renamed   []renameJSON `json:"renamed"`
	Changed   []changeJSON `json:"changed"`
	Unchanged int          `json:"unchanged"` // number of the other flows
	Cost      *cost.Fields `json:"cost"`      // of a packet after the change; null without --dry-run, and where XDP counts no flow
}

// JSON prints a difference as JSON.
func JSON(w io.Writer, instance string, dryRun bool, d dataplane.Difference) error {
	out := Changes{
		Schema:    1,
		Instance:  instance,
		DryRun:    dryRun,
		Settings:  fields(d.Settings),
		Added:     append([]string{}, d.Added...), // [], not null
		Removed:   append([]string{}, d.Removed...),
		Renamed:   []renameJSON{},
		Changed:   []changeJSON{},
		Unchanged: d.Unchanged,
		Cost:      cost.JSON(d.Cost),
	}
	for _, r := range d.Renamed {
		out.Renamed = append(out.Renamed, renameJSON{r.From, r.To})
	}
	for _, c := range d.Changed {
		out.Changed = append(out.Changed, changeJSON{c.Name, fields(c.Fields), c.Anew})
	}
	return format.JSON(w, out)
}

func fields(list []dataplane.FieldChange) []fieldJSON {
	out := make([]fieldJSON, len(list))
	for i, f := range list {
		out[i] = fieldJSON{f.Field, f.From, f.To}
	}
	return out
}

// mostOrders is how many flows with the same new place Text lists one by one.
const mostOrders = 10

// Text returns a line for each change. Inserting a flow before thousands of others changes the place of each: Text
// summarizes these in one line.
func Text(d dataplane.Difference) string {
	countByOrder := make(map[string]int) // of the flows that change in their order alone
	for _, c := range d.Changed {
		countByOrder[newOrder(c)]++
	}
	many := func(order string) bool { return order != "" && countByOrder[order] > mostOrders }

	d.Changed = slices.DeleteFunc(slices.Clone(d.Changed), func(c dataplane.FlowChange) bool { return many(newOrder(c)) })
	text := d.String()
	for _, order := range slices.Sorted(maps.Keys(countByOrder)) {
		if many(order) {
			text += fmt.Sprintf("~ %d flows: %s\n", countByOrder[order], order)
		}
	}
	return text
}

// newOrder returns the new place of a flow, such as "behind web", if nothing else about the flow changes. Else it returns
// "".
func newOrder(c dataplane.FlowChange) string {
	if len(c.Fields) == 1 && c.Fields[0].Field == "order" {
		return c.Fields[0].To
	}
	return ""
}

// Summary returns one line about a difference, such as "1 flow added, 4,000 flows unchanged".
func Summary(d dataplane.Difference) string {
	text := ""
	add := func(n int, noun, done string) {
		if n > 0 {
			text += format.Plural(uint64(n), noun, noun+"s") + " " + done + ", "
		}
	}
	add(len(d.Settings), "setting", "changed")
	add(len(d.Added), "flow", "added")
	add(changed(d), "flow", "changed")
	add(len(d.Removed), "flow", "removed")
	return text + fmt.Sprintf("%s unchanged", format.Plural(uint64(d.Unchanged), "flow", "flows"))
}

// changed returns the number of flows with any change, including a new name.
func changed(d dataplane.Difference) int {
	names := make(map[string]bool, len(d.Changed))
	for _, c := range d.Changed {
		names[c.Name] = true
	}
	for _, r := range d.Renamed {
		names[r.To] = true
	}
	return len(names)
}
