package flow

import (
	"fmt"
	"math"
)

// mostValues limits the values of one choice.
const mostValues = 4096

// checkChoices checks each choice by itself.
func (m *Match) checkChoices(bad func(field, cause, fix string)) {
	for i := range m.Choices {
		c := &m.Choices[i]
		name := c.path()
		f, ref := c.fieldOf(), c.in(m)
		switch {
		case f == nil || !f.hasChoices():
			bad(name, "no such field has a set of values", "the text form of a match names the fields: tcp dport {22, 80}")
			continue
		case ref == nil:
			bad(name, "the match has a set for a field of a clause that it lacks", "add the clause "+c.Clause)
			continue
		case f.asks(ref):
			bad(name, "the field has a value and a set", "put the value into the set")
			continue
		case m.choice(c.Clause, c.Tag, c.Field) != c:
			bad(name, "the field has two sets", "join the two")
			continue
		}
		for _, other := range f.sharing() {
			if m.choice(c.Clause, c.Tag, other) != nil {
				bad(name, fmt.Sprintf("%q and %q have bits in common", f.name, other), "leave one out")
			}
		}
		if p, isPart := partOf(ref); isPart && p.of.Mask != 0 && p.of.Mask != ^uint8(ones(p.bits)<<p.shift) {
			bad(name, "the byte of the field has a mask of its own", "ask for dscp and ecn by themselves")
		}
		c.check(f, func(cause, fix string) { bad(name, cause, fix) })
	}
}

// check checks the values of a choice.
func (c *Choice) check(f *field, bad func(cause, fix string)) {
	if c.Set != "" {
		c.checkNamed(f, bad)
		return
	}
	switch n := len(c.Values); {
	case n == 0:
		bad("the set is empty", "put a value into it, or leave the field out")
		return
	case n > mostValues:
		bad(fmt.Sprintf("the set has %d values, more than %d", n, mostValues), fewerValues)
		return
	}
	for i, v := range c.Values {
		if cause, fix := f.checkValue(v); cause != "" {
			if len(c.Values) > 1 {
				cause = fmt.Sprintf("value %d of the set: %s", i+1, cause)
			}
			bad(cause, fix)
			return
		}
	}
	switch pieces, ok := f.pieces(c, mostAlternatives); {
	case !ok:
		bad(fmt.Sprintf("it takes more than %d masks to tell its values from others", mostAlternatives), fewerValues)
	case len(pieces) == 0:
		bad("it excludes every value, so no packet matches", "leave the flow out, or exclude less")
	}
}

const fewerValues = "join neighbours into ranges or prefixes, or make several flows of it"

// checkValue checks one value of a choice.
func (f *field) checkValue(v Value) (cause, fix string) {
	most := whole(f.bits)
	if v.Last.isZero() {
		switch {
		case !v.Mask.andNot(most).isZero():
			return fmt.Sprintf("the mask does not fit in %d bits", f.bits), "leave out its bits above"
		case !v.Value.andNot(v.Mask).isZero():
			return "the value has bits outside its mask", "clear them"
		case v.Mask.isZero():
			return matchesEvery, "leave the field out"
		}
		return "", ""
	}
	switch {
	case !f.hasRanges():
		return f.name + " has no ranges", "name each value, or use a mask"
	case !v.Mask.isZero():
		return "a range has no mask", "clear Mask or Last"
	case v.Last.Compare(most) > 0:
		return fmt.Sprintf("the range does not fit in %d bits", f.bits), "end it earlier"
	case v.Value.Compare(v.Last) > 0:
		return "the range runs backwards", "exchange Value and Last"
	}
	return "", ""
}

const matchesEvery = "a mask of 0 matches every value"

// path returns the name of the field, as the errors of Validate have it.
func (c *Choice) path() string {
	if c.Clause == "vlan" {
		return fmt.Sprintf("vlan[%d].%s", c.Tag, c.Field)
	}
	return c.Clause + "." + c.Field
}

// checkAlternatives reports a match that stands for too many plain ones.
func (m *Match) checkAlternatives(bad func(field, cause, fix string)) {
	if !m.anyChoice() {
		return
	}
	if n := m.countAlternatives(); n > mostAlternatives {
		bad("", fmt.Sprintf("its sets stand for %d combinations of values, more than %d", n, mostAlternatives), fewerValues)
	}
}

// countAlternatives returns how many alternatives a match has at most. It builds none of them.
func (m *Match) countAlternatives() int {
	n := m.countChoices()
	for inner := range m.inners() {
		n = saturatingProduct(n, (*inner).countChoices())
	}
	return n
}

func (m *Match) countChoices() int {
	n := 1
	for i := range m.Choices {
		c := &m.Choices[i]
		f := c.fieldOf()
		if f == nil || len(c.Values) > mostValues {
			continue // checkChoices reports it
		}
		if pieces, ok := f.pieces(c, mostAlternatives); ok {
			n = saturatingProduct(n, len(pieces))
		}
	}
	return n
}

func saturatingProduct(a, b int) int {
	if a > 0 && b > math.MaxInt32/a {
		return math.MaxInt32
	}
	return a * b
}
