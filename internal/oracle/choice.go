package oracle

import "github.com/flowtally/flowtally/dataplane/flow"

// matchChoices looks at each set of values as it is written. It must not use flow.Match.Alternatives, which the classifiers do.
func matchChoices(m *flow.Match, h *headers, sets sets) bool {
	for _, c := range m.Choices {
		n, present := h.number(c.Clause, c.Tag, c.Field)
		if !present {
			return false
		}
		has := false
		for _, v := range c.Values {
			has = has || valueMatch(n, v)
		}
		if c.Set != "" {
			has = sets.has(c.Set, address(c.Clause, n))
		}
		if has == c.Not {
			return false
		}
	}
	return true
}

func valueMatch(n flow.Number, v flow.Value) bool {
	if v.Last != (flow.Number{}) {
		return v.Value.Compare(n) <= 0 && n.Compare(v.Last) <= 0
	}
	return n.Hi&v.Mask.Hi == v.Value.Hi && n.Lo&v.Mask.Lo == v.Value.Lo
}

// number returns the number in a field of the packet. present is false if the packet does not have the field.
func (h *headers) number(clause string, tag int, field string) (n flow.Number, present bool) {
	number := func(n uint32) (flow.Number, bool) { return flow.Number{Lo: uint64(n)}, true }
	bytes := func(b []byte) (flow.Number, bool) { return flow.NumberOf(b), true }
	switch {
	case clause == "eth" && h.eth != nil:
		switch field {
		case "src":
			return bytes(h.eth.src)
		case "dst":
			return bytes(h.eth.dst)
		case "type":
			return number(uint32(h.eth.typ))
		}
	case clause == "vlan" && tag < len(h.tags):
		switch t := h.tags[tag]; field {
		case "id":
			return number(uint32(t.id))
		case "pcp":
			return number(uint32(t.pcp))
		case "dei":
			return number(uint32(t.dei))
		}
	case clause == "mpls" && h.mpls != nil:
		return h.mpls.number(field)
	case clause == "arp" && h.arp != nil:
		switch a := h.arp; field {
		case "op":
			return number(uint32(a.op))
		case "sender":
			return bytes(a.sender)
		case "target":
			return bytes(a.target)
		}
	case clause == "ipv4" && h.ip4 != nil:
		switch ip := h.ip4; field {
		case "dscp":
			return number(uint32(ip.tos >> 2))
		case "ecn":
			return number(uint32(ip.tos & 3))
		case "src":
			return bytes(ip.src)
		case "dst":
			return bytes(ip.dst)
		case "proto":
			return number(uint32(ip.proto))
		case "tos":
			return number(uint32(ip.tos))
		case "ttl":
			return number(uint32(ip.ttl))
		}
	case clause == "ipv6" && h.ip6 != nil:
		switch ip := h.ip6; field {
		case "dscp":
			return number(uint32(ip.class >> 2))
		case "ecn":
			return number(uint32(ip.class & 3))
		case "src":
			return bytes(ip.src)
		case "dst":
			return bytes(ip.dst)
		case "label":
			return number(ip.label)
		case "nexthdr":
			return number(uint32(ip.nextHeader))
		case "tclass":
			return number(uint32(ip.class))
		case "hoplimit":
			return number(uint32(ip.hopLimit))
		}
	case clause == "tcp" && field == "flags" && h.upper == 6 && h.flags != nil:
		return number(uint32(*h.flags))
	case clause == "sctp" && field == "vtag" && h.upper == 132 && h.vtag != nil:
		return number(*h.vtag)
	case h.ports != nil && (clause == "tcp" && h.upper == 6 || clause == "udp" && h.upper == 17 || clause == "sctp" && h.upper == 132):
		switch field {
		case "sport":
			return number(uint32(h.ports.src))
		case "dport":
			return number(uint32(h.ports.dst))
		}
	case clause == "icmp" && h.icmp != nil:
		switch field {
		case "type":
			return number(uint32(h.icmp.typ))
		case "code":
			return number(uint32(h.icmp.code))
		}
	case h.spi != nil && (clause == "esp" && h.upper == 50 || clause == "ah" && h.upper == 51):
		return number(*h.spi)
	case clause == "vxlan" && h.vxlan != nil:
		return number(h.vxlan.key)
	case clause == "geneve" && h.geneve != nil:
		return number(h.geneve.key)
	case clause == "gtpu" && h.gtpu != nil:
		return number(h.gtpu.key)
	case clause == "mplsudp" && h.mplsudp != nil:
		return h.mplsudp.entry.number(field)
	case clause == "gre" && h.gre != nil && h.gre.hasKey:
		return number(h.gre.key)
	}
	return flow.Number{}, false
}

func (e *mplsHeader) number(field string) (n flow.Number, present bool) {
	switch field {
	case "label":
		n.Lo = uint64(e.label)
	case "tc":
		n.Lo = uint64(e.tc)
	case "bos":
		n.Lo = uint64(e.bottom)
	case "ttl":
		n.Lo = uint64(e.ttl)
	default:
		return n, false
	}
	return n, true
}
