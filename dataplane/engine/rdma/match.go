package rdma

import (
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/probe"
)

// How a flow.Match goes to a NIC
//
// A flow goes to hardware only if the NIC matches exactly the packets that docs/flows.md
// defines. For each term the table says what mlx5 does, and what follows for us. Sources are
// the mlx5 drivers of rdma-core and the kernel, and DPDK for DevX.
// TestHardwareTakesExactlyTheMatchesOfTheTable has a case for each row.
//
//	term                      verbs (ibv_create_flow)            DevX (mlx5dv_create_flow)
//	any, eth, MACs            exact                              exact
//	eth type                  exact: both look behind the tags   exact
//	eth type of a tag, or a   refused: the reading of a third    refused
//	  length (below 0x600)    tag, and of bytes behind a
//	                          length, is not documented
//	no vlan clause            exact: any tagging                 exact
//	vlan                      refused: the kernel asks for a     two rules, cvlan_tag and
//	                          C-tag, flow takes 0x88a8 too       svlan_tag; two clauses, four
//	untagged                  refused: no spec                   exact: cvlan_tag 0 is neither a
//	                                                             C-tag nor an S-tag; inside a
//	                                                             tunnel refused
//	ipv4, ipv6, addresses     exact                              exact, by ip_version
//	ipv4 proto                exact (ip_protocol)                exact
//	ipv4 tos, ipv6 tclass     exact (DSCP and ECN)               exact
//	ipv6 label                exact                              exact
//	ipv6 nexthdr              refused: next_hdr is matched as    refused
//	                          ip_protocol, which lies behind
//	                          the extension headers
//	ttl, hoplimit             refused: EOPNOTSUPP                refused: not every device has
//	                                                             the field, and none says so
//	incomplete                refused: no field says where the   refused
//	                          parser stopped
//	ipv4 frag                 refused: EOPNOTSUPP                yes and no: exact; first and
//	                                                             later: refused
//	ipv6 frag                 refused: no field                  refused: the bit says that a
//	                                                             fragment header is there, in a
//	                                                             whole datagram (RFC 6946) too
//	tcp, udp, icmp, gre,      exact, one rule per family:        exact, one rule per family
//	  nothing more asked      every fragment
//	ports                     exact: absent in later fragments   exact
//	ports, all may be 0       refused: a later fragment has      refused
//	                          none, and may look like 0
//	tcp flags                 refused: no spec                   exact (tcp_flags), but not when
//	                                                             all may be clear (as ports), and
//	                                                             not the reserved bits
//	esp                       exact, as tcp                      exact, as tcp
//	esp spi                   exact, but not SPI 0 (as ports),   exact, but not SPI 0 (as ports)
//	                          nor inside a tunnel: mlx5 sets
//	                          outer_esp_spi for both levels
//	ah                        exact, as tcp over IPv4            exact, as tcp over IPv4
//	ah spi                    refused: no spec                   refused: no field
//	sctp                      exact, as tcp                      exact, as tcp
//	sctp ports, tag           refused: no spec                   refused: no field
//	arp                       exact, by its EtherType            exact, by its EtherType
//	arp op, sender, target    refused: no spec                   refused: no field
//	mpls                      exact: two rules, EtherTypes       exact: two rules
//	                          0x8847 and 0x8848; inside a        (outer_first_mpls); inside a
//	                          tunnel refused                     tunnel refused
//	icmp type, code           refused: no spec                   exact where a flex parser is set
//	                                                             up for ICMP, but not inside a
//	                                                             tunnel, nor when all may be 0
//	                                                             (as ports)
//	vxlan                     exact: UDP to 4789; with vni or    exact
//	                          inner, and inner headers that
//	                          have a field, but not
//	                          `inner any`: no field says
//	                          "a whole header"
//	gre key                   refused: a packet without a key    exact: gre_k_present
//	                          may look like key 0
//	gre inner                 inner headers, if a field of one   the same
//	                          is asked for
//	ipip, nothing more asked  exact, one rule per family and     exact, one rule per family
//	                          protocol number                    and protocol number
//	ipip inner                refused: takes a flex parser       refused: takes a flex parser
//	geneve, gtpu, mplsudp,    exact: UDP to the port             exact
//	  nothing more asked
//	geneve vni, gtpu teid,    refused: no spec                   refused: takes a flex parser
//	  and inner
//	mplsudp fields and inner  refused: takes a flex parser       refused: takes a flex parser
//	inner headers             as the outer ones                  as the outer ones
//	a set, a range of a       one rule for each alternative; if  the same
//	  field, !=               one is refused, so is the set
//
// A packet to the port of VXLAN is VXLAN, whatever its flags: mlx5 is told which UDP ports are VXLAN
// (ADD_VXLAN_UDP_DPORT in the kernel's lib/vxlan.c; 4789 is from the start). The kernel's
// parse_flow_attr asks for the VNI, DPDK's flow_dv_translate_item_vxlan for the port and the VNI,
// and neither for the I flag.
//
// The flex parsers of the tunnels are set up by profiles of the firmware, of which a device has one: 0 for IP in IP and Geneve,
// 1 for Geneve and MPLS, 3 for GTP-U (DPDK's guide of the platform mlx5). So no device matches all of these tunnels.
//
// No public source answers these questions. Only tests on a card can:
//   - whether a NIC sees the ports of a first fragment, TCP flags in the padding behind a short one, and an ICMP type
//     in a later one;
//   - how many and which extension headers its parser passes;
//   - how it treats wrong headers (an IHL below 5, a frame that ends early).
//
// Conforming traffic without fragments, and with the usual extension headers or none, does not depend on the answers.

// steeringAPI is the API through which rules go to a device, with the optional abilities of the device's parser.
type steeringAPI uint8

const (
	withVerbs  steeringAPI = 0      // ibv_create_flow
	withDevX   steeringAPI = 1 << 0 // mlx5dv_create_flow
	parsesICMP steeringAPI = 1 << 1 // with DevX: a flex parser is set up for ICMP and ICMPv6
)

// maxRules bounds the rules of one flow on one device. A match of two unaligned port ranges would take thousands.
const maxRules = 256

// EtherTypes of VLAN tags, and of Ethernet in GRE.
const (
	typeCTag, typeSTag = 0x8100, 0x88a8
	typeTEB            = 0x6558
)

// ruleMatch is the match of one rule. It has neither sets nor ranges of ports, and names one IP family if a layer above needs IP.
type ruleMatch struct {
	flow.Match
	tags  []uint16   // the EtherType of each tag in VLAN
	ipip  uint8      // the protocol number of IP in IP
	inner *ruleMatch // the match inside the tunnel; do not use Match.Inner
}

// ruleMatches returns the rules that express a match together, or why hardware cannot express it. No packet matches two of them:
// it would count twice in mode dont-trap.
func ruleMatches(m flow.Match, by steeringAPI) ([]ruleMatch, error) {
	alternatives, err := m.Alternatives()
	if err != nil {
		return nil, err
	}
	for _, a := range alternatives {
		if err := limits(a, by); err != nil {
			return nil, err
		}
	}
	expanded, err := m.Expand()
	if err != nil {
		return nil, err
	}
	var out []ruleMatch
	for _, m := range expanded {
		for _, o := range variants(m) {
			in := m.Inner()
			if in == nil {
				out = append(out, o)
				continue
			}
			for _, i := range variants(*in) {
				o := o
				o.inner = &i
				out = append(out, o)
			}
		}
		if len(out) > maxRules {
			return nil, refusal("match", fmt.Sprintf("it takes more than %d rules", maxRules), "split the flow, or use aligned port ranges")
		}
	}
	return out, nil
}

// variants splits the outer or inner headers of a match by IP family and by the kinds of tags.
func variants(m flow.Match) []ruleMatch {
	if m.ARP != nil {
		m = typed(m, flow.EtherARP)
	}
	var out []ruleMatch
	for _, f := range slices.Concat(ruleFamilies(m), labelled(m)) {
		tagged := []ruleMatch{{Match: f}}
		if f.IPIP != nil {
			tagged = nil
			for _, n := range f.IPIPProtocols() {
				tagged = append(tagged, ruleMatch{Match: f, ipip: n})
			}
		}
		for range m.VLAN {
			var next []ruleMatch
			for _, t := range tagged {
				for _, kind := range []uint16{typeCTag, typeSTag} {
					u := t
					u.tags = append(slices.Clip(t.tags), kind)
					next = append(next, u)
				}
			}
			tagged = next
		}
		out = append(out, tagged...)
	}
	return out
}

// labelled splits a match of MPLS into its two EtherTypes. The rule must name one: the label's field alone does not say that
// there is a label.
func labelled(m flow.Match) (out []flow.Match) {
	if m.MPLS == nil {
		return nil
	}
	for _, t := range []uint16{flow.EtherMPLS, flow.EtherMPLSMulticast} {
		if !m.AdmitsEtherType(t) {
			continue
		}
		out = append(out, typed(m, t))
	}
	return out
}

// typed returns the match with an EtherType.
func typed(m flow.Match, t uint16) flow.Match {
	eth := flow.Eth{}
	if m.Eth != nil {
		eth = *m.Eth
	}
	eth.Type = flow.Masked[uint16]{Value: t, Mask: 0xffff}
	m.Eth = &eth
	return m
}

// mplsEntry returns the label stack entry that a match asks for, and its mask.
func (m *ruleMatch) mplsEntry() (val, mask uint32) {
	entry := func(label uint32, tc, bottom, ttl uint8) uint32 {
		return label<<12 | uint32(tc)<<9 | uint32(bottom)<<8 | uint32(ttl)
	}
	e := m.MPLS
	return entry(e.Label.Value, e.TC.Value, e.Bottom.Value, e.TTL.Value), entry(e.Label.Mask, e.TC.Mask, e.Bottom.Mask, e.TTL.Mask)
}

// ruleFamilies splits a match that needs IP, but leaves the family open. Hardware only compares the protocol number if the rule
// names the family.
func ruleFamilies(m flow.Match) []flow.Match {
	switch {
	case m.MPLS != nil:
		return nil
	case m.IPv4 != nil || m.IPv6 != nil || !needsIP(m):
		return []flow.Match{m}
	}
	var out []flow.Match
	if m.AdmitsEtherType(flow.EtherIPv4) {
		v4 := m
		v4.IPv4 = &flow.IPv4{}
		out = append(out, v4)
	}
	if m.AdmitsEtherType(flow.EtherIPv6) {
		v6 := m
		v6.IPv6 = &flow.IPv6{}
		out = append(out, v6)
	}
	return out
}

func needsIP(m flow.Match) bool {
	return m.TCP != nil || m.UDP != nil || m.SCTP != nil || m.ICMP != nil || m.ESP != nil || m.AH != nil || m.GRE != nil || m.IPIP != nil || m.TunnelPort() != 0
}

// protocol returns the protocol above IP that a match asks for.
func (m *ruleMatch) protocol() (p flow.Masked[uint8]) {
	switch {
	case m.TCP != nil:
		return flow.Masked[uint8]{Value: flow.ProtoTCP, Mask: 0xff}
	case m.UDP != nil: // also for tunnels over UDP, since flow.Match.Expand adds the port
		return flow.Masked[uint8]{Value: flow.ProtoUDP, Mask: 0xff}
	case m.GRE != nil:
		return flow.Masked[uint8]{Value: flow.ProtoGRE, Mask: 0xff}
	case m.IPIP != nil:
		return flow.Masked[uint8]{Value: m.ipip, Mask: 0xff}
	case m.ESP != nil:
		return flow.Masked[uint8]{Value: flow.ProtoESP, Mask: 0xff}
	case m.AH != nil:
		return flow.Masked[uint8]{Value: flow.ProtoAH, Mask: 0xff}
	case m.SCTP != nil:
		return flow.Masked[uint8]{Value: flow.ProtoSCTP, Mask: 0xff}
	case m.ICMP != nil && m.IPv6 != nil:
		return flow.Masked[uint8]{Value: flow.ProtoICMPv6, Mask: 0xff}
	case m.ICMP != nil:
		return flow.Masked[uint8]{Value: flow.ProtoICMP, Mask: 0xff}
	case m.IPv4 != nil:
		return m.IPv4.Proto
	}
	return p
}

// etherType returns the EtherType that a rule asks for. If it names an IP family, it asks for none.
func (m *ruleMatch) etherType() (t flow.Masked[uint16]) {
	if m.Eth != nil && m.IPv4 == nil && m.IPv6 == nil {
		t = m.Eth.Type
	}
	return t
}

// greProtocol returns the protocol of GRE if the match asks for an inner Ethernet header. Inner IP says nothing about it: IP can
// be in an Ethernet frame or directly in GRE.
func (m *ruleMatch) greProtocol() (p flow.Masked[uint16]) {
	if m.GRE != nil && m.inner != nil && (m.inner.Eth != nil || len(m.inner.VLAN) > 0) {
		p = flow.Masked[uint16]{Value: typeTEB, Mask: 0xffff}
	}
	return p
}

// refusal is the error of a match that hardware cannot express exactly.
func refusal(field, reason, fix string) error {
	return &probe.UnsupportedError{Feature: "matching " + field, Object: "the NIC", Reason: reason, Fix: fix}
}
