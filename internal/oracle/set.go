package oracle

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// sets has the named sets of the flows, by name.
type sets map[string]*set

// has reports whether an element of the set has an address. It panics if the set is not there: without it, a match would count packets
// as if the set were empty.
func (s sets) has(name string, a netip.Addr) bool {
	set := s[name]
	if set == nil {
		panic("oracle: a match names the set @" + name + ", whose elements are missing")
	}
	return set.has(a)
}

// set looks an address up once for each length that an element has.
type set struct {
	elements map[netip.Prefix]bool
	lengths  map[int][]int // by the bits of an address
}

func newSet(list []netip.Prefix) (*set, error) {
	s := &set{elements: make(map[netip.Prefix]bool, len(list)), lengths: make(map[int][]int)}
	for _, p := range list {
		if !p.IsValid() || p != p.Masked() {
			return nil, fmt.Errorf("%v is no prefix", p)
		}
		s.elements[p] = true
		if bits := p.Addr().BitLen(); !slices.Contains(s.lengths[bits], p.Bits()) {
			s.lengths[bits] = append(s.lengths[bits], p.Bits())
		}
	}
	return s, nil
}

func (s *set) has(a netip.Addr) bool {
	return slices.ContainsFunc(s.lengths[a.BitLen()], func(n int) bool {
		p, err := a.Prefix(n)
		return err == nil && s.elements[p]
	})
}

// address returns the number of an address field as an address.
func address(clause string, n flow.Number) netip.Addr {
	if clause == "ipv4" {
		var b [4]byte
		n.Fill(b[:])
		return netip.AddrFrom4(b)
	}
	var b [16]byte
	n.Fill(b[:])
	return netip.AddrFrom16(b)
}
