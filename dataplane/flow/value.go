package flow

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// valueError says what is wrong with a value, and what to write instead.
type valueError struct{ why, fix string }

func (e *valueError) Error() string { return e.why }

func (f *field) isFragment() bool { return f.name == "frag" }

// expects describes the values of a field, for error messages.
func (f *field) expects() string {
	switch f.ref(full, 0).(type) {
	case *MAC:
		return "a MAC address or address/mask (02:00:00:00:00:01)"
	case *Addr4:
		return "an IPv4 address, prefix, first-last or address/mask (192.0.2.0/24)"
	case *Addr6:
		return "an IPv6 address, prefix, first-last or address/mask (2001:db8::/32)"
	case *Port:
		return "a port or its name, first-last or value/mask (0 to 65535)"
	case *Fragment:
		return oneOf(fragmentWords[:])
	case *Masked[TCPFlags]:
		return "flags or flags/mask (syn/syn,ack), of " + oneOf(append([]string{wordNone}, flagWords[:]...))
	}
	number := "a number"
	if len(f.nameList()) > 0 {
		number = "a number or its name"
	}
	return fmt.Sprintf("%s, first-last or value/mask (%d bits, 0 to %d)", number, f.bits, ones(f.bits))
}

// full has every clause, so that field.ref can tell the type of any field.
var full = newFull()

func newFull() *Match {
	m := new(Match)
	for i := range clauses {
		clauses[i].add(m)
	}
	return m
}

// parse parses a value into the field at ref. It does not report bits outside the mask; check does.
func (f *field) parse(ref any, text string) error {
	switch p := ref.(type) {
	case *Fragment:
		for i, w := range fragmentWords {
			if w == text {
				*p = Fragment(i)
				return nil
			}
		}
		return &valueError{"no such kind of fragment", didYouMean(text, fragmentWords[:])}
	case *MAC:
		return parseMAC(p, text)
	case *Addr4:
		return parseAddr(p.Addr[:], p.Mask[:], text)
	case *Addr6:
		return parseAddr(p.Addr[:], p.Mask[:], text)
	case *Port:
		return f.parsePort(p, text)
	case *Masked[TCPFlags]:
		return f.parseFlags(p, text)
	}
	value, mask, err := f.parseNumber(text)
	if err != nil {
		return err
	}
	if _, isPart := partOf(ref); isPart { // check sees the whole field, and so could not name the part
		if cause, fix := f.checkNumber(value, mask); cause != "" {
			return &valueError{cause, fix}
		}
	}
	setNumber(ref, value, mask)
	return nil
}

func (f *field) parsePort(p *Port, text string) error {
	first, last, isRange := f.splitRange(text)
	if _, isName := f.names()[text]; isRange && !isName {
		lo, err := f.parseDigits(first)
		if err != nil {
			return err
		}
		hi, err := f.parseDigits(last)
		if err != nil {
			return err
		}
		switch {
		case lo == hi:
			*p = Port{Value: uint16(lo), Mask: uint16(ones(f.bits))}
			return nil
		case lo > hi:
			return &valueError{"the range runs backwards", fmt.Sprintf("did you mean %d-%d?", hi, lo)}
		}
		*p = Port{Value: uint16(lo), Last: uint16(hi)}
		return nil
	}
	value, mask, err := f.parseNumber(text)
	if err == nil {
		*p = Port{Value: uint16(value), Mask: uint16(mask)}
	}
	return err
}

// parseNumber parses value or value/mask. The value may be a name.
func (f *field) parseNumber(text string) (value, mask uint32, err error) {
	first, second, masked := strings.Cut(text, "/")
	if value, err = f.parseDigits(first); err != nil || !masked {
		return value, ones(f.bits), err
	}
	mask, err = f.parseDigits(second)
	return value, mask, err
}

// parseDigits parses a name of the field, a decimal number, or a hexadecimal one with 0x, and checks that it fits the field.
func (f *field) parseDigits(text string) (uint32, error) {
	if f.name == "nexthdr" && text == "icmp" {
		return 0, &valueError{`"icmp" is protocol 1, which IPv6 does not carry`, meant("icmpv6")}
	}
	if number, ok := f.names()[text]; ok {
		return number, nil
	}
	digits, base := text, 10
	if hex, ok := strings.CutPrefix(text, "0x"); ok {
		digits, base = hex, 16
	} else if len(text) > 1 && text[0] == '0' && strings.Trim(text, "0123456789") == "" {
		return 0, &valueError{"a leading zero is neither decimal nor octal here", "write " + max(strings.TrimLeft(text, "0"), "0") + ", or 0x" + text + " if it is hexadecimal"}
	}
	if digits == "" || !isAlnum(digits) { // ParseUint would accept a sign and underscores
		return 0, &valueError{quoted(text) + " is no number", ""}
	}
	v, err := strconv.ParseUint(digits, base, 64)
	switch {
	case err != nil && strings.Trim(digits, "0123456789") != "":
		return 0, &valueError{quoted(text) + " is no number", ""}
	case err != nil || v > uint64(ones(f.bits)):
		return 0, &valueError{fmt.Sprintf("%s does not fit in %d bits", quoted(text), f.bits), fmt.Sprintf("the most is %d", ones(f.bits))}
	}
	return uint32(v), nil
}

func isAlnum(s string) bool {
	for i := range len(s) {
		c := s[i] | 0x20
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

func parseMAC(p *MAC, text string) error {
	addr, mask, masked := strings.Cut(text, "/")
	a, err := net.ParseMAC(addr)
	if err != nil || len(a) != 6 {
		return &valueError{quoted(addr) + " is no MAC address", ""}
	}
	m := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	if masked {
		if m, err = net.ParseMAC(mask); err != nil || len(m) != 6 {
			return &valueError{quoted(mask) + " is no mask of a MAC address", "write it as an address: ff:ff:ff:00:00:00"}
		}
	}
	*p = MAC{[6]byte(a), [6]byte(m)}
	return nil
}

// parseAddr parses addr, addr/bits or addr/mask into slices of 4 or 16 bytes. It clears them on error.
func parseAddr(addr, mask []byte, text string) (err error) {
	defer func() {
		if err != nil {
			clear(addr)
			clear(mask)
		}
	}()
	first, second, masked := strings.Cut(text, "/")
	if err := parseIP(addr, first, "address"); err != nil {
		return err
	}
	if !masked {
		fillPrefix(mask, 8*len(mask))
		return nil
	}
	if second == "" || strings.Trim(second, "0123456789") != "" {
		return parseIP(mask, second, "mask")
	}
	n, err := strconv.Atoi(second)
	if err != nil || n > 8*len(mask) || strconv.Itoa(n) != second {
		return &valueError{quoted(second) + " is no prefix length", fmt.Sprintf("write 0 to %d", 8*len(mask))}
	}
	fillPrefix(mask, n)
	return nil
}

func parseIP(dst []byte, text, what string) error {
	a, err := netip.ParseAddr(text)
	family, other := "IPv4", "ipv6"
	if len(dst) == 16 {
		family, other = "IPv6", "ipv4"
	}
	if err != nil || a.Zone() != "" {
		return &valueError{fmt.Sprintf("%s is no %s %s", quoted(text), family, what), ""}
	}
	if b := a.AsSlice(); len(b) == len(dst) {
		copy(dst, b)
		return nil
	}
	fix := ""
	if what == "address" {
		fix = fmt.Sprintf("did you mean the clause %q?", other)
	}
	return &valueError{fmt.Sprintf("%s is no %s %s", quoted(text), family, what), fix}
}

func fillPrefix(mask []byte, n int) {
	for i := range mask {
		mask[i] = ^byte(0xff >> min(8, max(0, n-8*i)))
	}
}
