package flow

import "slices"

// Terms splits a match into minimal ones, in the order of the text form: each clause without its fields, and each field
// with its clause. A packet matches m if and only if it matches all of them, so they can tell why a packet does not match.
func (m Match) Terms() []Match {
	var terms []Match
	for i := range clauses {
		c := &clauses[i]
		if !c.has(&m) {
			continue
		}
		for tag := range c.times(&m) {
			terms = append(terms, c.term(tag))
			for j := range c.fields {
				f := &c.fields[j]
				if ref := f.ref(&m, tag); f.looks(ref) {
					t := c.term(tag)
					copyField(f.ref(&t, tag), ref)
					terms = append(terms, t)
				} else if choice := m.choice(c.name, tag, f.name); choice != nil {
					t := c.term(tag)
					t.Choices = []Choice{*choice}
					terms = append(terms, t)
				}
			}
		}
		if c.inner == nil || *c.inner(&m) == nil {
			continue
		}
		for _, in := range slices.Insert((*c.inner(&m)).Terms(), 0, Match{}) {
			t := c.term(0)
			*c.inner(&t) = &in
			terms = append(terms, t)
		}
	}
	return terms
}

// ValuesIn returns the fields of m with the values that packet has for them. packet is a match on all headers of one packet.
// Clauses missing from packet are left out.
func (m Match) ValuesIn(packet Match) (values Match) {
	for i := range clauses {
		c := &clauses[i]
		if !c.has(&m) || !c.has(&packet) {
			continue
		}
		for tag := range min(c.times(&m), c.times(&packet)) {
			c.add(&values)
			for j := range c.fields {
				if f := &c.fields[j]; f.looks(f.ref(&m, tag)) || m.choice(c.name, tag, f.name) != nil {
					copyField(f.ref(&values, tag), f.ref(&packet, tag))
				}
			}
		}
		if c.inner == nil || *c.inner(&m) == nil || *c.inner(&packet) == nil {
			continue
		}
		in := (*c.inner(&m)).ValuesIn(**c.inner(&packet))
		*c.inner(&values) = &in
	}
	return values
}

// times returns how often the clause occurs in m.
func (c *clause) times(m *Match) int {
	if c.name == "vlan" {
		return len(m.VLAN)
	}
	return 1
}

// term returns a match with only the clause, repeated up to the given place among several VLAN tags.
func (c *clause) term(place int) (m Match) {
	for range place + 1 {
		c.add(&m)
	}
	return m
}

// copyField copies the value of a field. Both pointers must be from [field.ref] of the same field.
func copyField(to, from any) {
	switch p := from.(type) {
	case *Masked[uint8]:
		*to.(*Masked[uint8]) = *p
	case *Masked[TCPFlags]:
		*to.(*Masked[TCPFlags]) = *p
	case *Masked[uint16]:
		*to.(*Masked[uint16]) = *p
	case *Masked[uint32]:
		*to.(*Masked[uint32]) = *p
	case *MAC:
		*to.(*MAC) = *p
	case *Addr4:
		*to.(*Addr4) = *p
	case *Addr6:
		*to.(*Addr6) = *p
	case *Port:
		*to.(*Port) = *p
	case *Fragment:
		*to.(*Fragment) = *p
	case *dscp, *ecn:
		value, mask, _ := number(from)
		setNumber(to, value, mask)
	}
}
