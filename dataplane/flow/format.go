package flow

import (
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"strconv"
)

// String returns the canonical text form. For a valid match, [ParseMatch] turns it back into an equal match.
func (m Match) String() string {
	return string(m.append(make([]byte, 0, 64)))
}

// append appends the canonical text form.
func (m *Match) append(text []byte) []byte {
	if m.anyChoice() {
		c := m.canonical()
		m = &c
	}
	return m.appendClauses(text, false)
}

// appendClauses stops at a tunnel inside a tunnel. Valid matches have none, and an invalid match that contains itself must
// not recurse forever.
func (m *Match) appendClauses(text []byte, inside bool) []byte {
	start := len(text)
	word := func(w string) {
		if len(text) > start {
			text = append(text, ' ')
		}
		text = append(text, w...)
	}
	for i := range clauses {
		c := &clauses[i]
		if !c.has(m) {
			continue
		}
		for tag := range c.times(m) {
			word(c.name)
			for j := range c.fields {
				f := &c.fields[j]
				if ref := f.ref(m, tag); f.looks(ref) {
					word(f.name)
					text = f.append(append(text, ' '), ref)
				} else if choice := m.choice(c.name, tag, f.name); choice != nil {
					word(f.name)
					text = f.appendChoice(append(text, ' '), choice)
				}
			}
		}
		if c.inner == nil || inside {
			continue
		}
		if inner := *c.inner(m); inner != nil {
			word(wordInner)
			text = inner.appendClauses(append(text, ' '), true)
		}
	}
	if len(text) == start {
		text = append(text, wordAny...)
	}
	return text
}

// looks reports whether the field restricts the match.
func (f *field) looks(ref any) bool {
	switch p := ref.(type) {
	case *MAC:
		return p.Mask != [6]byte{}
	case *Addr4:
		return p.Mask != [4]byte{}
	case *Addr6:
		return p.Mask != [16]byte{}
	case *Port:
		return p.Last != 0 || p.Mask != 0
	case *Fragment:
		return *p != FragmentAny
	}
	if p, is := partOf(ref); is {
		return p.exact()
	}
	_, mask, _ := number(ref)
	if f.name == "tos" || f.name == "tclass" {
		return mask != 0 && mask != 0xfc && mask != 0x03 // these are dscp and ecn
	}
	return mask != 0
}

// format returns the value of a field as text, or "" if the field matches everything.
func (f *field) format(ref any) string {
	if !f.looks(ref) {
		return ""
	}
	return string(f.append(nil, ref))
}

// append appends the value of a field. The field must restrict the match.
func (f *field) append(text []byte, ref any) []byte {
	switch p := ref.(type) {
	case *MAC:
		return appendMasked(text, p.Addr[:], p.Mask[:], appendMAC, false)
	case *Addr4:
		return appendMasked(text, p.Addr[:], p.Mask[:], appendAddr, true)
	case *Addr6:
		return appendMasked(text, p.Addr[:], p.Mask[:], appendAddr, true)
	case *Port:
		if p.Last != 0 {
			return fmt.Appendf(text, "%d-%d", p.Value, p.Last)
		}
		return f.appendNumber(text, uint32(p.Value), uint32(p.Mask))
	case *Fragment:
		return append(text, p.String()...)
	case *Masked[TCPFlags]:
		text = append(text, p.Value.String()...)
		if p.Mask != plainFlags|p.Value {
			text = append(append(text, '/'), p.Mask.String()...)
		}
		return text
	default:
		value, mask, _ := number(ref)
		return f.appendNumber(text, value, mask)
	}
}

func (f *field) appendNumber(text []byte, value, mask uint32) []byte {
	digits := (f.bits + 3) / 4
	if f.hex {
		text = fmt.Appendf(text, "0x%0*x", digits, value)
	} else {
		text = strconv.AppendUint(text, uint64(value), 10)
	}
	if mask != ones(f.bits) {
		text = fmt.Appendf(text, "/0x%0*x", digits, mask)
	}
	return text
}

func appendAddr(text, b []byte) []byte {
	addr, _ := netip.AddrFromSlice(b)
	return addr.AppendTo(text)
}

func appendMAC(text, b []byte) []byte { return append(text, net.HardwareAddr(b).String()...) }

func appendMasked(text, addr, mask []byte, one func(text, b []byte) []byte, cidr bool) []byte {
	text = one(text, addr)
	n, isPrefix := prefixLen(mask)
	switch {
	case isPrefix && n == 8*len(mask):
		return text
	case isPrefix && cidr:
		return strconv.AppendInt(append(text, '/'), int64(n), 10)
	}
	return one(append(text, '/'), mask)
}

// prefixLen returns the number of leading ones in a mask. ok is false if ones follow after a zero.
func prefixLen(mask []byte) (n int, ok bool) {
	for i, b := range mask {
		lead := bits.LeadingZeros8(^b)
		n += lead
		if lead == 8 {
			continue
		}
		if b<<lead != 0 {
			return n, false
		}
		for _, rest := range mask[i+1:] {
			if rest != 0 {
				return n, false
			}
		}
		return n, true
	}
	return n, true
}

func (f Fragment) String() string {
	if int(f) < len(fragmentWords) {
		return fragmentWords[f]
	}
	return fmt.Sprintf("Fragment(%d)", uint8(f))
}

func (d Direction) String() string {
	if int(d) < len(directionWords) {
		return directionWords[d]
	}
	return fmt.Sprintf("Direction(%d)", uint8(d))
}

func (a Action) String() string {
	if int(a) < len(actionWords) {
		return actionWords[a]
	}
	return fmt.Sprintf("Action(%d)", uint8(a))
}
