package flow

import "fmt"

// check returns the mistakes of a match. path leads to it, for the errors: "" or "vxlan.inner.". inside says that it is the
// match inside a tunnel, which cannot have another tunnel.
func (m *Match) check(path string, inside bool) []*FieldError {
	var broken []*FieldError
	bad := func(field, cause, fix string) {
		broken = append(broken, &FieldError{Field: path + field, Cause: cause, Fix: fix})
	}
	m.checkFields(bad)
	m.checkChoices(bad)
	m.checkLayers(bad)
	m.checkUpper(bad)
	m.checkIncomplete(bad)
	for i := range clauses {
		c := &clauses[i]
		if c.inner == nil || !c.has(m) {
			continue
		}
		if inside {
			bad(c.name, "headers inside two tunnels are not looked at", "leave it out")
			continue
		}
		if inner := *c.inner(m); inner != nil {
			broken = append(broken, inner.check(path+c.name+".inner.", true)...)
		}
	}
	if !inside && len(broken) == 0 {
		m.checkAlternatives(bad)
	}
	return broken
}

// checkFields checks the width, the mask and the range of each field.
func (m *Match) checkFields(bad func(field, cause, fix string)) {
	for i := range clauses {
		c := &clauses[i]
		if !c.has(m) {
			continue
		}
		times := 1
		if c.name == "vlan" {
			times = min(len(m.VLAN), maxTags)
		}
		for tag := range times {
			name := c.name
			if c.name == "vlan" {
				name = fmt.Sprintf("vlan[%d]", tag)
			}
			for j := range c.fields {
				f := &c.fields[j]
				if cause, fix := f.check(f.ref(m, tag)); cause != "" {
					bad(name+"."+f.name, cause, fix)
				}
			}
		}
	}
	if n := len(m.VLAN); n > maxTags {
		bad("vlan", fmt.Sprintf("%d vlan clauses: only the two outermost tags are looked at", n), "leave the innermost out")
	}
}

// check checks one field.
func (f *field) check(ref any) (cause, fix string) {
	switch p := ref.(type) {
	case *Fragment:
		if int(*p) >= len(fragmentWords) {
			return fmt.Sprintf("value %d has no word", uint8(*p)), "use " + oneOf(fragmentWords[:])
		}
		return "", ""
	case *MAC:
		if !within(p.Addr[:], p.Mask[:]) {
			fixed := *p
			return f.fixAddr(&fixed, fixed.Addr[:], p.Mask[:])
		}
		return "", ""
	case *Addr4:
		if !within(p.Addr[:], p.Mask[:]) {
			fixed := *p
			return f.fixAddr(&fixed, fixed.Addr[:], p.Mask[:])
		}
		return "", ""
	case *Addr6:
		if !within(p.Addr[:], p.Mask[:]) {
			fixed := *p
			return f.fixAddr(&fixed, fixed.Addr[:], p.Mask[:])
		}
		return "", ""
	case *Port:
		switch {
		case p.Last != 0 && p.Mask != 0:
			return "a range has no mask", "clear Mask or Last"
		case p.Last != 0 && p.Value == p.Last:
			return "the range holds one port", fmt.Sprintf("write %d", p.Last)
		case p.Last != 0 && p.Value > p.Last:
			return "the range runs backwards", fmt.Sprintf("did you mean %d-%d?", p.Last, p.Value)
		case p.Last != 0:
			return "", ""
		}
		return f.checkNumber(uint32(p.Value), uint32(p.Mask))
	case *Masked[TCPFlags]:
		return f.checkFlags(*p)
	case *dscp, *ecn:
		return "", "" // the whole field is checked
	}
	value, mask, _ := number(ref)
	return f.checkNumber(value, mask)
}

func (f *field) checkNumber(value, mask uint32) (cause, fix string) {
	switch {
	case mask&^ones(f.bits) != 0:
		return fmt.Sprintf("mask 0x%x does not fit in %d bits", mask, f.bits), fmt.Sprintf("the widest is 0x%x", ones(f.bits))
	case value&^mask != 0:
		if mask == 0 {
			return "the value has bits outside its mask", didYouMeanValue("")
		}
		return "the value has bits outside its mask", didYouMeanValue(string(f.appendNumber(nil, value&mask, mask)))
	}
	return "", ""
}

// within reports whether an address has no bit outside its mask.
func within(addr, mask []byte) bool {
	for i := range addr {
		if addr[i]&^mask[i] != 0 {
			return false
		}
	}
	return true
}

// fixAddr reports an address outside its mask and proposes the masked one. addr must be the address in fixed, a copy of
// the field that fixAddr may change.
func (f *field) fixAddr(fixed any, addr, mask []byte) (cause, fix string) {
	for i := range addr {
		addr[i] &= mask[i]
	}
	return "the address has bits outside its mask", didYouMeanValue(f.format(fixed))
}

// didYouMeanValue proposes a value. An empty text means a field that matches everything, which is better left out.
func didYouMeanValue(text string) string {
	if text == "" {
		return "a mask of 0 matches everything: leave the field out"
	}
	return fmt.Sprintf("did you mean %s?", text)
}
