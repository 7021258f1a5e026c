package plot

import (
	"context"

	"github.com/flowtally/flowtally/internal/bench"
)

// Row is a row of the bench whose sides are points of curves.
type Row struct {
	bench.Row
	Panel     string // its title
	X         float64
	Ours, Ref string // the curves of the two sides; "": not drawn
}

// Measure runs the rows and adds their points to the curves of panels, by the titles. A row that was not
// measured adds none; the report has its reason.
func Measure(ctx context.Context, rows []Row, o bench.Options, panels []Panel) (*bench.Report, error) {
	list := make([]bench.Row, len(rows))
	for i, r := range rows {
		list[i] = r.Row
	}
	report, err := bench.Run(ctx, list, o)
	if err != nil {
		return nil, err
	}
	for i, result := range report.Results {
		if result.Ratio == nil {
			continue
		}
		for j := range panels {
			if panels[j].Title == rows[i].Panel {
				panels[j].add(rows[i].Ours, rows[i].X, *result.Ours)
				panels[j].add(rows[i].Ref, rows[i].X, *result.RefNS)
			}
		}
	}
	return report, nil
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
