package plugin

import (
	"net/netip"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// Bytes of an element on the wire.
const (
	elementBytes4 = 4 + 1
	elementBytes6 = 16 + 1
)

// setsToProto validates the sets first, because an invalid prefix has no bytes.
func setsToProto(sets []dataplane.Set) ([]*pluginv1.Set, error) {
	out := make([]*pluginv1.Set, len(sets))
	for i, s := range sets {
		if err := s.Validate(); err != nil {
			return nil, err
		}
		p := &pluginv1.Set{Name: s.Name}
		for _, e := range s.Elements {
			to := &p.Ipv6
			if e.Addr().Is4() {
				to = &p.Ipv4
			}
			*to = append(append(*to, e.Addr().AsSlice()...), byte(e.Bits()))
		}
		out[i] = p
	}
	return out, nil
}

// setsFromProto validates the sets, as flowsFromProto does the flows.
func setsFromProto(in []*pluginv1.Set) ([]dataplane.Set, error) {
	if len(in) > dataplane.MostSets {
		return nil, invalid("sets: %d of them: at most %d", len(in), dataplane.MostSets)
	}
	var out []dataplane.Set
	left := dataplane.MostElementsOfAll
	for i, p := range in {
		if p == nil {
			return nil, invalid("set %d: no set in the message", i)
		}
		if left -= len(p.Ipv4)/elementBytes4 + len(p.Ipv6)/elementBytes6; left < 0 {
			return nil, invalid("sets: more than %d elements together", dataplane.MostElementsOfAll)
		}
		if len(p.Name) > maxName {
			return nil, invalid("set %d: a name of %d bytes is too long: use %d at most", i, len(p.Name), maxName)
		}
		s := dataplane.Set{Name: p.Name}
		s.Elements = slices.Grow(s.Elements, len(p.Ipv4)/elementBytes4+len(p.Ipv6)/elementBytes6)
		for _, part := range []struct {
			bytes []byte
			size  int
		}{{p.Ipv4, elementBytes4}, {p.Ipv6, elementBytes6}} {
			if len(part.bytes)%part.size != 0 {
				return nil, invalid("set %q: its elements have %d bytes, which are no multiple of %d", p.Name, len(part.bytes), part.size)
			}
			for element := range slices.Chunk(part.bytes, part.size) {
				a, _ := netip.AddrFromSlice(element[:part.size-1])
				s.Elements = append(s.Elements, netip.PrefixFrom(a, int(element[part.size-1])))
			}
		}
		if err := s.Validate(); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}
