package flow

import (
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// String writes the match in its canonical text form: for a valid match,
// ParseMatch reads the same match back.
func (m Match) String() string {
	words := m.appendWords(nil, false)
	if len(words) == 0 {
		return wordAny
	}
	return strings.Join(words, " ")
}

// appendWords does not look into a tunnel inside a tunnel: no valid match has
// one, and a match that holds itself must not hang its printer.
func (m *Match) appendWords(words []string, inside bool) []string {
	for i := range clauses {
		c := &clauses[i]
		if !c.has(m) {
			continue
		}
		for tag := range c.times(m) {
			words = append(words, c.name)
			for j := range c.fields {
				f := &c.fields[j]
				if text := f.format(f.ref(m, tag)); text != "" {
					words = append(words, f.name, text)
				}
			}
		}
		if c.inner == nil || inside {
			continue
		}
		if inner := *c.inner(m); inner != nil {
			words = append(words, wordInner)
			before := len(words)
			if words = inner.appendWords(words, true); len(words) == before {
				words = append(words, wordAny)
			}
		}
	}
	return words
}

// format writes a field's value; empty when the field is not looked at.
func (f *field) format(ref any) string {
	switch p := ref.(type) {
	case *MAC:
		return formatMasked(p.Addr[:], p.Mask[:], func(b []byte) string { return net.HardwareAddr(b).String() }, false)
	case *Addr4:
		return formatMasked(p.Addr[:], p.Mask[:], formatAddr, true)
	case *Addr6:
		return formatMasked(p.Addr[:], p.Mask[:], formatAddr, true)
	case *Port:
		if p.Last != 0 {
			return fmt.Sprintf("%d-%d", p.Value, p.Last)
		}
		return f.formatNumber(uint32(p.Value), uint32(p.Mask))
	case *Fragment:
		if *p == FragmentAny {
			return ""
		}
		return p.String()
	case *Masked[TCPFlags]:
		switch p.Mask {
		case 0:
			return ""
		case plainFlags | p.Value:
			return p.Value.String()
		}
		return p.Value.String() + "/" + p.Mask.String()
	default:
		value, mask, _ := number(ref)
		return f.formatNumber(value, mask)
	}
}

func (f *field) formatNumber(value, mask uint32) string {
	digits := (f.bits + 3) / 4
	text := strconv.FormatUint(uint64(value), 10)
	if f.hex {
		text = fmt.Sprintf("0x%0*x", digits, value)
	}
	switch mask {
	case 0:
		return ""
	case ones(f.bits):
		return text
	}
	return fmt.Sprintf("%s/0x%0*x", text, digits, mask)
}

func formatAddr(b []byte) string {
	addr, _ := netip.AddrFromSlice(b)
	return addr.String()
}

func formatMasked(addr, mask []byte, text func([]byte) string, cidr bool) string {
	n, isPrefix := prefixLen(mask)
	switch {
	case isPrefix && n == 0:
		return ""
	case isPrefix && n == 8*len(mask):
		return text(addr)
	case isPrefix && cidr:
		return text(addr) + "/" + strconv.Itoa(n)
	}
	return text(addr) + "/" + text(mask)
}

// prefixLen counts the leading ones of a mask; ok when nothing follows them.
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
