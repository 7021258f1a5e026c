package xdp

import (
	"errors"
	"fmt"

	"github.com/flowtally/flowtally/xdp/tree"
)

// Path is what one packet touches: nodes of the trees and lines of the hash table, and entries of rules that it is
// compared with. It is a count, the same on every host.
type Path = tree.Path

// className is the name of a class of frames, by its number in Cost.Worst and CostError.Class.
func className(class int) string {
	return [3]string{classOther: "neither IPv4 nor IPv6", classIPv4: "IPv4", classIPv6: "IPv6"}[class]
}

// costProbe is the most that a packet touches under one hashed mask: 32 slots in a row are in at most five lines of the
// cache, and a probe compares at most four entries. costSingle is the same of a mask with one key, which is a constant of
// the program.
var (
	costProbe  = Path{Nodes: 5, Entries: slotAttempts}
	costSingle = Path{Nodes: 1, Entries: 1}
)

// CostError is an ErrCostly. It is returned when some packet could touch more than Options.WorstCost.
type CostError struct {
	Class int // of the frames
	Worst Path
	Bound int
	Rules []Rule // with which the packet is compared, those of the longest list first
}

// Error implements error.
func (e *CostError) Error() string {
	return fmt.Sprintf("%v: a packet (%s) could touch %d nodes and be compared with %d rules, %d steps in all, and %d are allowed",
		ErrCostly, className(e.Class), e.Worst.Nodes, e.Worst.Entries, e.Worst.Steps(), e.Bound)
}

// Unwrap returns ErrCostly.
func (e *CostError) Unwrap() error { return ErrCostly }

// Cost is what packets touch in the classifier.
type Cost struct {
	// Worst is a path for each class of frames. No packet of the class touches more.
	Worst [3]Path
	// Nodes, Entries and NS are means over packets that the rules match. NS is an estimate in nanoseconds, without the parser.
	Nodes, Entries, NS float64
}

// hashedCost is the most that a packet touches under the hashed masks: it may have to look under each of them.
func (t *tables) hashedCost() (sum Path) {
	for _, u := range t.tuples {
		switch {
		case u == nil || u.rules == 0:
		case u.hashed:
			sum = sum.Plus(costProbe)
		default:
			sum = sum.Plus(costSingle)
		}
	}
	return sum
}

// worst returns the worst path of each class of frames.
func (t *tables) worst() [3]Path {
	worst := t.forest.set.Worst()
	for c := range worst {
		worst[c] = worst[c].Plus(t.hashedCost())
	}
	return worst
}

// costly makes an error of package tree one of this package, which counts hashed masks too.
func (t *tables) costly(err error) error {
	var e *tree.CostError
	if !errors.As(err, &e) {
		return err
	}
	out := &CostError{Class: e.Class, Worst: e.Worst.Plus(t.hashedCost()), Bound: t.worstCost}
	for _, entry := range e.Entries {
		unit := unitOfTree(entry)
		var r Rule
		t.entries.readTree(unit, &r)
		d := t.entries.dirWord(unit)
		r.Counter, r.Drop = d.counter(), d.drop()
		r.Priority, r.Order = uint16(t.entries.rank(unit)>>32), uint32(t.entries.rank(unit))
		out.Rules = append(out.Rules, r)
	}
	return out
}
