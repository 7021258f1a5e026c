package flow

import (
	"cmp"
	"slices"
)

// Choice asks that a field has one of several values or, with Not, that it is there and has none of them. It stands for
// what the text form writes as "tcp dport {22, 80}", "ipv4 src != 10.0.0.0/8" or "ipv4 src 10.0.0.5-10.0.0.9".
//
// The match must have the clause, and leave the field itself empty. A field has one choice at most. The order of choices
// and of values does not matter, and values may overlap: [Match.Equal] and [Match.String] put them in order.
//
// With Set, the values are the elements of a named set ("ipv4 src @blocklist"), and Values is empty.
type Choice struct {
	Clause string // as in the text form: "tcp"
	Tag    int    // the index in VLAN; 0 for other clauses
	Field  string // as in the text form: "dport"
	Not    bool
	Values []Value
	Set    string // see [ValidateSetName]; only for src and dst of ipv4 and ipv6
}

// Value is a value of a [Choice]. It works like [Port] for a field of any width: if Last is not 0, it matches the range from
// Value to Last, both inclusive, and Mask must be 0. Otherwise it matches a field f if f&Mask == Value. MAC addresses and TCP
// flags have no ranges.
type Value struct{ Value, Mask, Last Number }

// holds reports whether v matches a number.
func (v Value) holds(n Number) bool {
	if !v.Last.isZero() {
		return v.Value.Compare(n) <= 0 && n.Compare(v.Last) <= 0
	}
	return n.and(v.Mask) == v.Value
}

// holds reports whether c matches a field with this number. A named set may have any number.
func (c *Choice) holds(n Number) bool {
	return c.Set != "" || slices.ContainsFunc(c.Values, func(v Value) bool { return v.holds(n) }) != c.Not
}

// choice returns the choice for a field, or nil if the match has none.
func (m *Match) choice(clause string, tag int, field string) *Choice {
	for i := range m.Choices {
		if c := &m.Choices[i]; c.Clause == clause && c.Tag == tag && c.Field == field {
			return c
		}
	}
	return nil
}

// chooses reports whether the match has a choice for any of the fields, or for any field of the clause if none is named.
func (m *Match) chooses(clause string, fields ...string) bool {
	return slices.ContainsFunc(m.Choices, func(c Choice) bool {
		return c.Clause == clause && (len(fields) == 0 || slices.Contains(fields, c.Field))
	})
}

// choiceAdmits reports whether the choice for a field allows a number. It is true without a choice.
func (m *Match) choiceAdmits(clause, field string, n uint32) bool {
	c := m.choice(clause, 0, field)
	return c == nil || c.holds(Number{Lo: uint64(n)})
}

// anyChoice reports whether the match has a choice, also for a header inside its tunnel.
func (m *Match) anyChoice() bool {
	if len(m.Choices) > 0 {
		return true
	}
	inner := m.Inner()
	return inner != nil && len(inner.Choices) > 0
}

// inners yields the Inner fields that are set. A valid match has one at most.
func (m *Match) inners() func(yield func(**Match) bool) {
	return func(yield func(**Match) bool) {
		for i := range clauses {
			c := &clauses[i]
			if c.inner != nil && c.has(m) && *c.inner(m) != nil && !yield(c.inner(m)) {
				return
			}
		}
	}
}

// fieldOf returns the field of a choice, or nil if the grammar has no such field.
func (c *Choice) fieldOf() *field {
	clause := clauseNamed(c.Clause)
	if clause == nil {
		return nil
	}
	return clause.field(c.Field)
}

// in returns a pointer to the field of the choice in m, or nil if m lacks the clause.
func (c *Choice) in(m *Match) any {
	clause := clauseNamed(c.Clause)
	if clause == nil || !clause.has(m) || c.Tag < 0 || c.Tag >= clause.times(m) {
		return nil
	}
	f := clause.field(c.Field)
	if f == nil {
		return nil
	}
	return f.ref(m, c.Tag)
}

// canonical returns the match with its choices in the order of the grammar and each in its canonical form. A choice of one
// value that the field itself can hold becomes that value. canonical does not change m.
func (m *Match) canonical() Match {
	if !m.anyChoice() {
		return *m
	}
	out := m.canonicalLevel()
	for inner := range out.inners() {
		in := (*inner).canonicalLevel()
		*inner = &in
	}
	return out
}

// canonicalLevel is canonical for the outer or the inner headers alone.
func (m *Match) canonicalLevel() Match {
	out := m.cloneLevel()
	out.Choices = nil
	for _, c := range m.Choices {
		f, ref := c.fieldOf(), c.in(&out)
		if ref == nil || !f.hasChoices() || len(c.Values) > mostValues || c.Set != "" {
			out.Choices = append(out.Choices, c) // a named set, or check reports it
			continue
		}
		c.Values = f.canonicalValues(c.Values)
		if !c.Not && len(c.Values) == 1 && !f.asks(ref) && f.holdsAlone(c.Values[0]) && storeValue(ref, c.Values[0]) {
			continue
		}
		out.Choices = append(out.Choices, c)
	}
	slices.SortStableFunc(out.Choices, func(a, b Choice) int {
		return cmp.Or(cmp.Compare(clauseIndex(a.Clause), clauseIndex(b.Clause)), cmp.Compare(a.Tag, b.Tag), cmp.Compare(a.fieldIndex(), b.fieldIndex()))
	})
	return out
}

func clauseIndex(name string) int {
	return slices.IndexFunc(clauses, func(c clause) bool { return c.name == name })
}

func (c *Choice) fieldIndex() int {
	clause := clauseNamed(c.Clause)
	if clause == nil {
		return -1
	}
	return slices.IndexFunc(clause.fields, func(f field) bool { return f.name == c.Field })
}

func sameChoice(a, b Choice) bool {
	return a.Clause == b.Clause && a.Tag == b.Tag && a.Field == b.Field && a.Not == b.Not && a.Set == b.Set &&
		slices.Equal(a.Values, b.Values)
}

// holdsAlone reports whether the field can have the value without a choice and is written the same. A mask on a part of a byte is
// written as a mask of the whole.
func (f *field) holdsAlone(v Value) bool {
	_, isPart := partOf(f.ref(full, 0))
	return !isPart || v.Mask == whole(f.bits)
}

// asks reports whether the match asks for any bit of the field.
func (f *field) asks(ref any) bool {
	_, mask, isNumber := number(ref)
	return isNumber && mask != 0 || f.looks(ref)
}

// hasChoices reports whether a set can choose among values of the field. "frag" has words of its own for that.
func (f *field) hasChoices() bool { return !f.isFragment() }

// hasRanges reports whether the field has ranges.
func (f *field) hasRanges() bool {
	switch f.ref(full, 0).(type) {
	case *MAC, *Fragment, *Masked[TCPFlags]:
		return false
	}
	return true
}

// isPort reports whether the field itself can hold a range.
func (f *field) isPort() bool {
	_, is := f.ref(full, 0).(*Port)
	return is
}

// isAddress reports whether the field has IP addresses, whose aligned ranges are prefixes.
func (f *field) isAddress() bool {
	switch f.ref(full, 0).(type) {
	case *Addr4, *Addr6:
		return true
	}
	return false
}

// loadValue returns the value of a field.
func loadValue(ref any) Value {
	switch p := ref.(type) {
	case *MAC:
		return Value{Value: NumberOf(p.Addr[:]), Mask: NumberOf(p.Mask[:])}
	case *Addr4:
		return Value{Value: NumberOf(p.Addr[:]), Mask: NumberOf(p.Mask[:])}
	case *Addr6:
		return Value{Value: NumberOf(p.Addr[:]), Mask: NumberOf(p.Mask[:])}
	case *Port:
		return Value{Value: Number{Lo: uint64(p.Value)}, Mask: Number{Lo: uint64(p.Mask)}, Last: Number{Lo: uint64(p.Last)}}
	}
	value, mask, _ := number(ref)
	return Value{Value: Number{Lo: uint64(value)}, Mask: Number{Lo: uint64(mask)}}
}

// storeValue sets a field to a value that fits. It returns false for a range, if the field is no port.
func storeValue(ref any, v Value) bool {
	p, isPort := ref.(*Port)
	if !v.Last.isZero() && !isPort {
		return false
	}
	switch a := ref.(type) {
	case *MAC:
		v.Value.Fill(a.Addr[:])
		v.Mask.Fill(a.Mask[:])
	case *Addr4:
		v.Value.Fill(a.Addr[:])
		v.Mask.Fill(a.Mask[:])
	case *Addr6:
		v.Value.Fill(a.Addr[:])
		v.Mask.Fill(a.Mask[:])
	case *Port:
		*p = Port{Value: uint16(v.Value.Lo), Mask: uint16(v.Mask.Lo), Last: uint16(v.Last.Lo)}
	default:
		setNumber(ref, uint32(v.Value.Lo), uint32(v.Mask.Lo))
	}
	return true
}
