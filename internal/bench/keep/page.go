package keep

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/internal/bench"
)

// table is a generated part of the page. Its first line says what it has: "machines", or "rows" and patterns of their
// names.
var table = regexp.MustCompile(`(?s)(<!-- table of (machines|rows) ?([^>]*?) ?-->\n).*?(\n<!-- end of table -->\n)`)

// Page returns the text of a page with its tables made anew. A row is in the table that has the longest of the patterns
// that match its name ("xdp.*"). Page fails for a row that no table takes, and for one without a text.
func Page(text string, rows []bench.Row, files []File) (string, error) {
	var patterns []string
	for _, t := range table.FindAllStringSubmatch(text, -1) {
		patterns = append(patterns, strings.Fields(t[3])...)
	}
	byPattern := make(map[string][]bench.Row)
	for _, row := range rows {
		if row.Ours == "" {
			return "", fmt.Errorf("row %s: it has no text for the page: set Row.Ours", row.Name)
		}
		p, err := longestMatch(patterns, row.Name)
		if err != nil {
			return "", err
		}
		byPattern[p] = append(byPattern[p], row)
	}

	return table.ReplaceAllStringFunc(text, func(old string) string {
		t := table.FindStringSubmatch(old)
		begin, kind, end := t[1], t[2], t[4]
		if kind == "machines" {
			return begin + "\n" + machineTable(files) + end
		}
		var list []bench.Row
		for _, p := range strings.Fields(t[3]) {
			list = append(list, byPattern[p]...)
		}
		return begin + "\n" + rowTable(list, files) + end
	}), nil
}

func longestMatch(patterns []string, name string) (string, error) {
	best := ""
	for _, p := range patterns {
		ok, err := path.Match(p, name)
		if err != nil {
			return "", fmt.Errorf("matching rows with %q: %w", p, err)
		}
		if ok && len(p) > len(best) {
			best = p
		}
	}
	if best == "" {
		return "", fmt.Errorf("row %s: no table of the page takes it: add a pattern to a line that begins with <!-- table of rows", name)
	}
	return best, nil
}

func rowTable(rows []bench.Row, files []File) string {
	heading := []string{"row", "ours", "against", "bound"}
	rule := []string{"---", "---", "---", "---:"}
	for _, f := range files {
		heading = append(heading, f.Core)
		rule = append(rule, "---")
	}
	var b strings.Builder
	line(&b, heading...)
	line(&b, rule...)
	for _, row := range rows {
		cells := []string{"`" + row.Name + "`", row.Ours, row.Ref, ""}
		if row.Bound != 0 {
			cells[3] = fmt.Sprint(row.Bound)
		}
		for _, f := range files {
			cells = append(cells, cell(row, Find(f.Rows, row)))
		}
		line(&b, cells...)
	}
	return b.String()
}

// cell has the ratio, then ours and the reference.
func cell(row bench.Row, f *Figure) string {
	if f == nil {
		return ""
	}
	text := fmt.Sprintf("**%.2f** (%s / %s)", f.Ratio, bench.Figure(f.Ours, row.Unit), bench.Figure(f.RefNS, row.Unit))
	if f.Noisy {
		text += " noisy"
	}
	return text
}

func machineTable(files []File) string {
	var b strings.Builder
	line(&b, "column", "processor", "CPUs", "Linux", "protected", "measured")
	line(&b, "---", "---", "---:", "---", "---", "---")
	for _, f := range files {
		m := f.Machine
		processor := fmt.Sprintf("%s, family %d", m.CPU, m.Family)
		if m.Model != 0 { // a file older than this table has none
			processor += fmt.Sprintf(", model %d, stepping %d", m.Model, m.Stepping)
		}
		line(&b, f.Core, processor, fmt.Sprint(m.CPUs), m.Kernel, protected(m), dates(f.Rows))
	}
	return b.String()
}

// protected names what the kernel mitigates at the cost of returns and jumps. Of spectre_v2 that is the retpoline alone.
func protected(m bench.Machine) string {
	var names []string
	for _, says := range m.Mitigations {
		name, how, _ := strings.Cut(says, ": ")
		if strings.HasPrefix(how, "Mitigation") && (name != "spectre_v2" || strings.Contains(how, "Retpoline")) {
			names = append(names, "`"+name+"`")
		}
	}
	return strings.Join(names, ", ")
}

// dates are the first and the last day on which a figure was measured.
func dates(figures []Figure) string {
	if len(figures) == 0 {
		return ""
	}
	byDate := func(a, b Figure) int { return cmp.Compare(a.Date, b.Date) }
	first := slices.MinFunc(figures, byDate).Date
	last := slices.MaxFunc(figures, byDate).Date
	if first == last {
		return first
	}
	return first + " to " + last
}

func line(b *strings.Builder, cells ...string) {
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(c, "|", `\|`)
	}
	fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
}
