// Package plot draws curves of the bench as an SVG image: panels side by side, logarithmic axes, one legend.
package plot

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
)

// Point of a curve. Both values are above 0.
type Point struct{ X, Y float64 }

// Curve is a series of points.
type Curve struct {
	Name   string
	Dashed bool // not measured in this run
	Points []Point
}

// Panel is a coordinate system with its curves.
type Panel struct {
	Title, XLabel, YLabel string
	Curves                []Curve
}

// Sizes in pixels.
const (
	width, height            = 460, 320 // of a panel's field
	left, right, top, bottom = 64, 32, 76, 48
	lineHeight               = 18
)

// colours are the palette of Okabe and Ito, which colour-blind readers can tell apart.
func colours() []string {
	return []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}
}

// SVG writes the panels, with a title above and notes below. Curves of one name have one colour in all panels.
func SVG(w io.Writer, title string, notes []string, panels []Panel) error {
	names := names(panels)
	total := len(panels) * (left + width + right)
	legend := top + height + bottom
	tall := legend + lineHeight*(len(names)+len(notes)) + 16
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n", total, tall, total, tall)
	fmt.Fprintf(&b, "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n", total, tall)
	text(&b, left, 22, "start", "bold", title)
	for i, p := range panels {
		p.draw(&b, i*(left+width+right)+left, names)
	}
	for i, n := range names {
		y := legend + i*lineHeight
		fmt.Fprintf(&b, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" %s/>\n", left, y, left+32, y, stroke(names, n, dashed(panels, n)))
		text(&b, left+40, y+4, "start", "normal", n)
	}
	for i, n := range notes {
		text(&b, left, legend+(len(names)+i)*lineHeight+8, "start", "normal", n)
	}
	b.WriteString("</svg>\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the plot: %w", err)
	}
	return nil
}

func names(panels []Panel) (list []string) {
	for _, p := range panels {
		for _, c := range p.Curves {
			if !slices.Contains(list, c.Name) {
				list = append(list, c.Name)
			}
		}
	}
	return list
}

func dashed(panels []Panel, name string) bool {
	return slices.ContainsFunc(panels, func(p Panel) bool {
		return slices.ContainsFunc(p.Curves, func(c Curve) bool { return c.Name == name && c.Dashed })
	})
}

func stroke(names []string, name string, dashed bool) string {
	all := colours()
	s := fmt.Sprintf("stroke=\"%s\" stroke-width=\"2\" fill=\"none\"", all[slices.Index(names, name)%len(all)])
	if dashed {
		s += " stroke-dasharray=\"6 4\""
	}
	return s
}

func text(b *strings.Builder, x, y int, anchor, weight, s string) {
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\" font-weight=\"%s\">%s</text>\n", x, y, anchor, weight, html.EscapeString(s))
}

// draw draws a panel whose field begins at x.
func (p Panel) draw(b *strings.Builder, x int, names []string) {
	xs, ys := p.axis(func(p Point) float64 { return p.X }), p.axis(func(p Point) float64 { return p.Y })
	at := func(q Point) (float64, float64) {
		return float64(x) + xs.share(q.X)*width, top + (1-ys.share(q.Y))*height
	}
	fmt.Fprintf(b, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#444444\"/>\n", x, top, width, height)
	text(b, x, top-10, "start", "normal", p.Title)
	text(b, x+width/2, top+height+34, "middle", "normal", p.XLabel)
	for _, v := range xs.marks() {
		px, _ := at(Point{v, 1})
		fmt.Fprintf(b, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#dddddd\"/>\n", px, top, px, top+height)
		text(b, int(px), top+height+16, "middle", "normal", number(v))
	}
	for _, v := range ys.marks() {
		_, py := at(Point{1, v})
		fmt.Fprintf(b, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#dddddd\"/>\n", x, py, x+width, py)
		text(b, x-6, int(py)+4, "end", "normal", number(v))
	}
	text(b, x, top-26, "start", "normal", p.YLabel)
	for _, c := range p.Curves {
		points := slices.SortedFunc(slices.Values(c.Points), func(a, b Point) int { return cmp.Compare(a.X, b.X) })
		var path strings.Builder
		for i, q := range points {
			px, py := at(q)
			fmt.Fprintf(&path, "%s%.1f %.1f ", map[bool]string{true: "M", false: "L"}[i == 0], px, py)
			fmt.Fprintf(b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" %s/>\n", px, py, stroke(names, c.Name, false))
		}
		fmt.Fprintf(b, "<path d=\"%s\" %s/>\n", strings.TrimSpace(path.String()), stroke(names, c.Name, c.Dashed))
	}
}

// axis is a logarithmic one, over whole decades.
type axis struct{ least, most float64 }

func (p Panel) axis(of func(Point) float64) axis {
	a := axis{math.Inf(1), math.Inf(-1)}
	for _, c := range p.Curves {
		for _, q := range c.Points {
			a.least, a.most = min(a.least, of(q)), max(a.most, of(q))
		}
	}
	if a.most < a.least {
		return axis{0, 1}
	}
	a = axis{math.Floor(math.Log10(a.least)), math.Ceil(math.Log10(a.most))}
	a.most = max(a.most, a.least+1)
	return a
}

func (a axis) share(v float64) float64 { return (math.Log10(v) - a.least) / (a.most - a.least) }

func (a axis) marks() (list []float64) {
	for e := a.least; e <= a.most; e++ {
		list = append(list, math.Pow(10, e))
	}
	return list
}

func number(v float64) string {
	if v < 1000 {
		return fmt.Sprintf("%g", v)
	}
	whole := fmt.Sprintf("%.0f", v)
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	return whole
}
