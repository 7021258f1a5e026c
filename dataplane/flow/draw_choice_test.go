package flow_test

import (
	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// choices draws sets for some of the fields of which m asks for no value.
func choices(t *rapid.T, m *flow.Match) {
	add := func(clause string, tag int, field string, bits int, free bool) {
		if !free || rapid.IntRange(0, 7).Draw(t, "set") != 0 {
			return
		}
		c := choice(t, clause, tag, field, bits)
		if clause[:2] == "ip" && (field == "src" || field == "dst") && rapid.IntRange(0, 3).Draw(t, "named") == 0 {
			c.Values = nil
			c.Set = rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._-]{0,62}`).Draw(t, "name")
		}
		m.Choices = append(m.Choices, c)
	}
	if e := m.Eth; e != nil {
		add("eth", 0, "src", 48, e.Src.Mask == [6]byte{})
		add("eth", 0, "type", 16, e.Type.Mask == 0)
	}
	for i, v := range m.VLAN {
		add("vlan", i, "id", 12, v.ID.Mask == 0)
		add("vlan", i, "dei", 1, v.DEI.Mask == 0)
	}
	if e := m.MPLS; e != nil {
		add("mpls", 0, "label", 20, e.Label.Mask == 0)
	}
	if ip := m.IPv4; ip != nil {
		add("ipv4", 0, "dst", 32, ip.Dst.Mask == [4]byte{})
		add("ipv4", 0, "src", 32, ip.Src.Mask == [4]byte{})
		add("ipv4", 0, "proto", 8, ip.Proto.Mask == 0)
		add("ipv4", 0, "tos", 8, ip.TOS.Mask == 0)
		add("ipv4", 0, "dscp", 6, ip.TOS.Mask&0xfc == 0)
		add("ipv4", 0, "ecn", 2, ip.TOS.Mask&0x03 == 0)
	}
	if ip := m.IPv6; ip != nil {
		add("ipv6", 0, "src", 128, ip.Src.Mask == [16]byte{})
		add("ipv6", 0, "nexthdr", 8, ip.NextHeader.Mask == 0)
	}
	if a := m.ARP; a != nil {
		add("arp", 0, "op", 16, a.Op.Mask == 0)
		add("arp", 0, "target", 32, a.Target.Mask == [4]byte{})
	}
	if s := m.SCTP; s != nil {
		add("sctp", 0, "dport", 16, s.Dst == flow.Port{})
		add("sctp", 0, "vtag", 32, s.Tag.Mask == 0)
	}
	if m.AH != nil {
		add("ah", 0, "spi", 32, m.AH.SPI.Mask == 0)
	}
	if m.Geneve != nil {
		add("geneve", 0, "vni", 24, m.Geneve.VNI.Mask == 0)
	}
	if m.GTPU != nil {
		add("gtpu", 0, "teid", 32, m.GTPU.TEID.Mask == 0)
	}
	if m.MPLSUDP != nil {
		add("mplsudp", 0, "ttl", 8, m.MPLSUDP.TTL.Mask == 0)
	}
	if p := m.TCP; p != nil {
		add("tcp", 0, "flags", 12, p.Flags.Mask == 0)
		add("tcp", 0, "sport", 16, p.Src == flow.Port{})
		add("tcp", 0, "dport", 16, p.Dst == flow.Port{})
	}
	if p := m.UDP; p != nil {
		add("udp", 0, "dport", 16, p.Dst == flow.Port{})
	}
	if m.ICMP != nil {
		add("icmp", 0, "type", 8, m.ICMP.Type.Mask == 0)
	}
	if m.ESP != nil {
		add("esp", 0, "spi", 32, m.ESP.SPI.Mask == 0)
	}
	if m.VXLAN != nil {
		add("vxlan", 0, "vni", 24, m.VXLAN.VNI.Mask == 0)
	}
	if m.GRE != nil {
		add("gre", 0, "key", 32, m.GRE.Key.Mask == 0)
	}
}

// choice draws values that may overlap, in any order.
func choice(t *rapid.T, clause string, tag int, field string, bits int) flow.Choice {
	c := flow.Choice{Clause: clause, Tag: tag, Field: field, Not: rapid.Bool().Draw(t, "not")}
	most := flow.Number{Hi: ^uint64(0), Lo: ^uint64(0)}
	switch {
	case bits < 64:
		most = flow.Number{Lo: uint64(1)<<bits - 1}
	case bits < 128:
		most.Hi = uint64(1)<<(bits-64) - 1
	}
	number := func(what string) flow.Number {
		n := flow.Number{Hi: rapid.Uint64().Draw(t, what), Lo: rapid.Uint64().Draw(t, what)}
		if rapid.Bool().Draw(t, "small") {
			n = flow.Number{Lo: n.Lo % 16}
		}
		return flow.Number{Hi: n.Hi & most.Hi, Lo: n.Lo & most.Lo}
	}
	for range rapid.IntRange(1, 4).Draw(t, "values") {
		v := flow.Value{Value: number("value"), Mask: most}
		switch kind := rapid.IntRange(0, 4).Draw(t, "kind"); {
		case kind < 2 && clause != "eth" && field != "flags":
			if last := number("last"); last.Compare(v.Value) > 0 {
				v.Mask, v.Last = flow.Number{}, last
			}
		case kind == 2:
			bit := rapid.IntRange(0, min(bits, 64)-1).Draw(t, "bit")
			v.Mask.Lo &^= 1 << bit
		}
		if v.Last == (flow.Number{}) && v.Mask == (flow.Number{}) {
			v.Mask = most
		}
		if v.Last == (flow.Number{}) {
			v.Value = flow.Number{Hi: v.Value.Hi & v.Mask.Hi, Lo: v.Value.Lo & v.Mask.Lo}
		}
		c.Values = append(c.Values, v)
	}
	return c
}
