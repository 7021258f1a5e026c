package explain

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/cost"
	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
)

// ClassifierJSON is the output of explain --classifier -o json. Fields are only added.
type ClassifierJSON struct {
	Schema     int          `json:"schema"`
	Flows      int          `json:"flows"`
	Rules      int          `json:"rules"`
	Masks      int          `json:"masks"`
	Hashed     []hashedJSON `json:"hashed"` // masks in the hash table, in the order of the search
	TreeRules  int          `json:"tree_rules"`
	Trees      treesJSON    `json:"trees"`
	TreeWords  int          `json:"tree_words"` // of 8 bytes
	Packet     workJSON     `json:"packet"`
	NS         float64      `json:"ns"` // of a packet above an empty program, an estimate
	TupleMasks int          `json:"tuple_masks"`
	Cost       *cost.Fields `json:"cost"` // of a packet: typical, and at worst
	Others     othersJSON   `json:"others"`
	Why        string       `json:"why"`
}

type hashedJSON struct {
	Mask  string `json:"mask"` // the fields and their bits, in hex
	Rules int    `json:"rules"`
}

// treesJSON is the number of trees for each class of frames.
type treesJSON struct {
	Other int `json:"other"` // neither IPv4 nor IPv6
	IPv4  int `json:"ipv4"`
	IPv6  int `json:"ipv6"`
}

// workJSON is the mean work of a packet, over packets that the rules match.
type workJSON struct {
	Masks   float64 `json:"masks"` // that are searched
	Trees   float64 `json:"trees"`
	Cuts    float64 `json:"cuts"`
	Entries float64 `json:"entries"`

	Lines     float64 `json:"lines"`      // cache lines of maps that are touched, without the counter and its mark
	MostLines int     `json:"most_lines"` // of the packet that touches most
}

// othersJSON is the cost in ns of the classifiers that were not chosen.
type othersJSON struct {
	Tuples float64  `json:"tuples"` // a hash table for each mask, with ranges expanded to masks
	Trees  *float64 `json:"trees"`  // all rules in trees; null: they do not fit
	Linear float64  `json:"linear"` // one rule after the other
}

// Cost returns one line about a classifier and what a packet costs in it.
func Cost(flows int, p *xdp.Plan) string {
	if p.Rules == 0 {
		return "no flow that XDP could count"
	}
	var in []string
	if n := len(p.Hashed); n > 0 {
		in = append(in, format.Plural(uint64(n), "hashed mask", "hashed masks"))
	}
	if n := trees(p); n > 0 {
		in = append(in, format.Plural(uint64(n), "tree", "trees"))
	}
	return fmt.Sprintf("%s in %s, %s", format.Plural(uint64(flows), "flow", "flows"), strings.Join(in, " and "), cost.Line(&p.Cost))
}

// PrintClassifierJSON prints a classifier as JSON. flows is the number of flows in it.
func PrintClassifierJSON(w io.Writer, flows int, p *xdp.Plan) error {
	out := ClassifierJSON{
		Schema:    1,
		Flows:     flows,
		Rules:     p.Rules,
		Masks:     p.Masks,
		Hashed:    []hashedJSON{},
		TreeRules: p.InTrees,
		Trees:     treesJSON{p.Trees[0], p.Trees[1], p.Trees[2]},
		TreeWords: p.Words,
		Packet: workJSON{
			Masks:   round(p.Walked.Masks),
			Trees:   round(p.Walked.Trees),
			Cuts:    round(p.Walked.Cuts),
			Entries: round(p.Walked.Entries),

			Lines:     round(p.Walked.Lines),
			MostLines: p.MostLines,
		},
		NS:         round(p.NS),
		TupleMasks: p.TupleMasks,
		Cost:       cost.JSON(&p.Cost),
		Others:     othersJSON{Tuples: round(p.TupleNS), Linear: round(p.LinearNS)},
		Why:        why(p),
	}
	for _, h := range p.Hashed {
		out.Hashed = append(out.Hashed, hashedJSON{h.Mask, h.Rules})
	}
	if ns := round(p.TreesNS); p.TreesNS > 0 || p.Rules == 0 {
		out.Others.Trees = &ns
	}
	return format.JSON(w, out)
}

func round(x float64) float64 { return math.Round(10*x) / 10 }

// PrintClassifier prints a classifier for a person. flows is the number of flows in it.
func PrintClassifier(w io.Writer, flows int, p *xdp.Plan) error {
	var b strings.Builder
	fmt.Fprintf(&b, "classifier  %s\n", Cost(flows, p))
	fmt.Fprintf(&b, "why         %s\n", why(p))
	fmt.Fprintf(&b, "rules       %s over %s\n", format.Plural(uint64(p.Rules), "rule", "rules"), format.Plural(uint64(p.Masks), "mask", "masks"))
	for _, h := range p.Hashed {
		fmt.Fprintf(&b, "hashed      %s: %s\n", format.Plural(uint64(h.Rules), "rule", "rules"), h.Mask)
	}
	if p.InTrees > 0 {
		fmt.Fprintf(&b, "trees       %s in %s (IPv4 %d, IPv6 %d, other frames %d), %s of 8 bytes\n",
			format.Plural(uint64(p.InTrees), "rule", "rules"),
			format.Plural(uint64(trees(p)), "tree", "trees"), p.Trees[1], p.Trees[2], p.Trees[0],
			format.Plural(uint64(p.Words), "word", "words"))
	}
	if p.Rules > 0 {
		fmt.Fprintf(&b, "packet      %.1f masks, %.1f trees, %.1f cuts, %.1f entries\n", p.Walked.Masks, p.Walked.Trees, p.Walked.Cuts, p.Walked.Entries)
		fmt.Fprintf(&b, "lines       %.1f cache lines of maps a packet, %d at most, and 2 for its counter and the mark\n", p.Walked.Lines, p.MostLines)
		b.WriteString(cost.Text(&p.Cost, len("classifier  ")) + "\n")
		b.WriteString(alternatives(p))
		b.WriteString("\nEstimates of a packet that some rule matches, in ns above an empty program.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// why returns the reason for the choice of this classifier, for a person.
func why(p *xdp.Plan) string {
	switch {
	case p.Rules == 0:
		return "there is no rule"
	case p.InTrees == 0 && len(p.Hashed) == 1:
		return "the rules have one mask, and no range of ports: one probe of a hash table finds the rule"
	case p.InTrees == 0:
		return "the rules have few masks, and no range of ports: a probe for each mask costs less than a tree"
	case len(p.Hashed) == 0 && p.TupleMasks > p.Masks:
		return "ranges of ports are compared in trees, and a probe for a mask would not save more than it costs"
	case len(p.Hashed) == 0:
		return "no mask has so many of the rules that a probe for it would save more than it costs the packets of the others"
	}
	return "each hashed mask has so many of the rules that a probe for it saves its packets more than it costs the others"
}

// alternatives returns a table that compares the chosen classifier with the others.
func alternatives(p *xdp.Plan) string {
	ns := func(n float64) string { return fmt.Sprintf("%.0f", n) }
	t := format.Table{Heading: []string{"CLASSIFIER", ">NS", "STRUCTURE"}}
	t.Add("chosen", ns(p.NS), "as above")
	t.Add("tuple search", ns(p.TupleNS), fmt.Sprintf("a hash table of %s, with ranges of ports expanded", format.Plural(uint64(p.TupleMasks), "mask", "masks")))
	if p.TreesNS > 0 {
		t.Add("trees", ns(p.TreesNS), "all rules in trees")
	} else {
		t.Add("trees", "-", "the trees do not hold all rules")
	}
	t.Add("linear", ns(p.LinearNS), "one rule after the other")
	return t.Render()
}

// trees returns the number of trees of all classes of frames together.
func trees(p *xdp.Plan) int { return p.Trees[0] + p.Trees[1] + p.Trees[2] }
