package plot

import "github.com/flowtally/flowtally/internal/bench"

// Row is a row of the bench whose sides are points of curves.
type Row struct {
	bench.Row
	Panel     string // its title
	X         float64
	Ours, Ref string // the curves of the two sides; "": not drawn
}

// Bench returns the rows as the bench measures them.
func Bench(rows []Row) []bench.Row {
	list := make([]bench.Row, len(rows))
	for i, r := range rows {
		list[i] = r.Row
	}
	return list
}

// Add adds the points of a row to the curves of its panel, by the costs of its sides.
func Add(panels []Panel, row Row, ours, ref float64) {
	for i := range panels {
		if panels[i].Title == row.Panel {
			panels[i].add(row.Ours, row.X, ours)
			panels[i].add(row.Ref, row.X, ref)
		}
	}
}

// add adds a point to a curve, unless it is not above 0, where a logarithmic axis has no place.
func (p *Panel) add(curve string, x, y float64) {
	if curve == "" || y <= 0 {
		return
	}
	for i := range p.Curves {
		if p.Curves[i].Name == curve {
			p.Curves[i].Points = append(p.Curves[i].Points, Point{x, y})
			return
		}
	}
	p.Curves = append(p.Curves, Curve{Name: curve, Points: []Point{{x, y}}})
}
