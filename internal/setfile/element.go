package setfile

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// ElementError says what is wrong with an element, and what to write instead.
type ElementError struct{ Cause, Fix string }

func (e *ElementError) Error() string {
	if e.Fix == "" {
		return e.Cause
	}
	return e.Cause + "; " + e.Fix
}

// ParseElement appends the prefixes of an element: one of an address or a prefix, and of a range as many as it takes.
func ParseElement(out []netip.Prefix, text string) ([]netip.Prefix, *ElementError) {
	if at := strings.IndexByte(text, '/'); at >= 0 {
		p, err := parsePrefix(text, at)
		if err != nil {
			return out, err
		}
		return append(out, p), nil
	}
	if first, last, ok := strings.Cut(text, "-"); ok {
		return parseRange(out, first, last)
	}
	a, err := parseAddr(text)
	if err != nil {
		return out, err
	}
	return append(out, netip.PrefixFrom(a, a.BitLen())), nil
}

// parseAddr refuses a zone: it belongs to an interface of this host, and no packet has it.
func parseAddr(text string) (netip.Addr, *ElementError) {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, &ElementError{quoted(text) + " is no address", ""}
	}
	return a, nil
}

// parsePrefix parses a text with a slash at the given place.
func parsePrefix(text string, slash int) (netip.Prefix, *ElementError) {
	a, bad := parseAddr(text[:slash])
	if bad != nil {
		return netip.Prefix{}, bad
	}
	digits := text[slash+1:]
	n, err := strconv.Atoi(digits)
	if err != nil || n < 0 || n > a.BitLen() || strconv.Itoa(n) != digits { // Atoi takes a sign and leading zeros
		return netip.Prefix{}, &ElementError{quoted(digits) + " is no length of a prefix", fmt.Sprintf("write 0 to %d", a.BitLen())}
	}
	p := netip.PrefixFrom(a, n)
	if m := p.Masked(); m != p {
		return netip.Prefix{}, &ElementError{fmt.Sprintf("%s has bits behind the first %d", quoted(text), n), fmt.Sprintf("did you mean %s?", m)}
	}
	return p, nil
}

func parseRange(out []netip.Prefix, from, to string) ([]netip.Prefix, *ElementError) {
	first, err := parseAddr(from)
	if err != nil {
		return out, err
	}
	last, err := parseAddr(to)
	switch {
	case err != nil:
		return out, err
	case first.BitLen() != last.BitLen():
		return out, &ElementError{"the range begins with one version of IP, and ends with the other", "make two of it"}
	case last.Less(first):
		return out, &ElementError{"the range runs backwards", fmt.Sprintf("did you mean %s-%s?", last, first)}
	}
	return appendRange(out, first, last), nil
}

// appendRange appends the fewest prefixes that have the addresses from first to last.
func appendRange(out []netip.Prefix, first, last netip.Addr) []netip.Prefix {
	width := first.BitLen()
	at, end := numberOf(first), numberOf(last)
	for {
		// The prefix begins at a multiple of its size, and ends within the range.
		size := min(at.trailingZeros(), end.minus(at).log(), width)
		out = append(out, netip.PrefixFrom(at.addr(width), width-size))
		greatest := at.or(ones(size))
		if greatest == end {
			return out
		}
		at = greatest.next()
	}
}

// number is an address as a number of 128 bits.
type number struct{ hi, lo uint64 }

func numberOf(a netip.Addr) number {
	if a.Is4() {
		b := a.As4()
		return number{0, uint64(binary.BigEndian.Uint32(b[:]))}
	}
	b := a.As16()
	return number{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// addr returns the number as an address of 32 or 128 bits.
func (n number) addr(width int) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], n.hi)
	binary.BigEndian.PutUint64(b[8:], n.lo)
	a, _ := netip.AddrFromSlice(b[16-width/8:])
	return a
}

// ones returns the greatest number of so many bits.
func ones(size int) number {
	if size >= 64 {
		return number{1<<(size-64) - 1, ^uint64(0)}
	}
	return number{0, 1<<size - 1}
}

func (n number) or(o number) number { return number{n.hi | o.hi, n.lo | o.lo} }

func (n number) minus(o number) number {
	lo, borrow := bits.Sub64(n.lo, o.lo, 0)
	return number{n.hi - o.hi - borrow, lo}
}

func (n number) next() number {
	lo, carry := bits.Add64(n.lo, 1, 0)
	return number{n.hi + carry, lo}
}

func (n number) trailingZeros() int {
	if n.lo == 0 {
		return 64 + bits.TrailingZeros64(n.hi)
	}
	return bits.TrailingZeros64(n.lo)
}

// log returns the binary logarithm of n+1, rounded down.
func (n number) log() int {
	switch n = n.next(); {
	case n == number{}:
		return 128
	case n.hi > 0:
		return 63 + bits.Len64(n.hi)
	}
	return bits.Len64(n.lo) - 1
}

// Text returns an element as it is written: an address without the length of its prefix.
func Text(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// Contained is an element that another one contains.
type Contained struct{ Element, In netip.Prefix }

// mostShown is how many elements of a kind [Merge] returns.
const mostShown = 3

// Merge sorts elements, those of IPv4 first, and leaves out the ones that others contain. It changes list, whose memory the result
// has. contained counts the elements that were left out, and shown has the first three.
func Merge(list []netip.Prefix) (merged []netip.Prefix, contained int, shown []Contained) {
	slices.SortFunc(list, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	merged = list[:0]
	for _, p := range list {
		// Of the prefixes so far only the last can contain p: they are apart, and it begins the latest.
		if n := len(merged); n > 0 && merged[n-1].Contains(p.Addr()) {
			if contained++; contained <= mostShown {
				shown = append(shown, Contained{p, merged[n-1]})
			}
			continue
		}
		merged = append(merged, p)
	}
	return merged, contained, shown
}

// quoted quotes a text of a file, and shortens it.
func quoted(text string) string {
	const most = 60
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return strconv.Quote(text)
}
