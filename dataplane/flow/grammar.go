package flow

// This table is the grammar. Parser, printer, checks and the YAML form all use it, so they cannot disagree on a word, a
// width or an order.

// clause is one protocol: its word, and the fields that may follow.
type clause struct {
	name   string
	fields []field
	has    func(*Match) bool
	add    func(*Match)
	// inner returns a pointer to the Inner field of a tunnel. It is nil for other clauses.
	inner func(*Match) **Match
}

// field is one field of a clause.
type field struct {
	name string
	bits int  // width of the header field
	hex  bool // written in hexadecimal
	// ref returns a pointer to the field: *Masked[uint8|uint16|uint32|TCPFlags], *MAC, *Addr4, *Addr6, *Port or
	// *Fragment, or *dscp or *ecn. i is the index into VLAN, and 0 for other clauses. The match must have the clause.
	ref func(m *Match, i int) any
}

// clauses has the order in which String prints them.
var clauses = []clause{
	{name: "eth", has: func(m *Match) bool { return m.Eth != nil }, add: func(m *Match) { m.Eth = new(Eth) }, fields: []field{
		{"src", 48, true, func(m *Match, _ int) any { return &m.Eth.Src }},
		{"dst", 48, true, func(m *Match, _ int) any { return &m.Eth.Dst }},
		{"type", 16, true, func(m *Match, _ int) any { return &m.Eth.Type }},
	}},
	{name: "vlan", has: func(m *Match) bool { return len(m.VLAN) > 0 }, add: func(m *Match) { m.VLAN = append(m.VLAN, VLAN{}) }, fields: []field{
		{"id", 12, false, func(m *Match, i int) any { return &m.VLAN[i].ID }},
		{"pcp", 3, false, func(m *Match, i int) any { return &m.VLAN[i].PCP }},
		{"dei", 1, false, func(m *Match, i int) any { return &m.VLAN[i].DEI }},
	}},
	{name: wordUntagged, has: func(m *Match) bool { return m.Untagged }, add: func(m *Match) { m.Untagged = true }},
	{name: "mpls", has: func(m *Match) bool { return m.MPLS != nil }, add: func(m *Match) { m.MPLS = new(MPLS) }, fields: []field{
		{"label", 20, false, func(m *Match, _ int) any { return &m.MPLS.Label }},
		{"tc", 3, false, func(m *Match, _ int) any { return &m.MPLS.TC }},
		{"bos", 1, false, func(m *Match, _ int) any { return &m.MPLS.Bottom }},
		{"ttl", 8, false, func(m *Match, _ int) any { return &m.MPLS.TTL }},
	}},
	{name: "arp", has: func(m *Match) bool { return m.ARP != nil }, add: func(m *Match) { m.ARP = new(ARP) }, fields: []field{
		{"op", 16, false, func(m *Match, _ int) any { return &m.ARP.Op }},
		{"sender", 32, false, func(m *Match, _ int) any { return &m.ARP.Sender }},
		{"target", 32, false, func(m *Match, _ int) any { return &m.ARP.Target }},
	}},
	{name: "ipv4", has: func(m *Match) bool { return m.IPv4 != nil }, add: func(m *Match) { m.IPv4 = new(IPv4) }, fields: []field{
		{"src", 32, false, func(m *Match, _ int) any { return &m.IPv4.Src }},
		{"dst", 32, false, func(m *Match, _ int) any { return &m.IPv4.Dst }},
		{"proto", 8, false, func(m *Match, _ int) any { return &m.IPv4.Proto }},
		{"tos", 8, true, func(m *Match, _ int) any { return &m.IPv4.TOS }},
		{"dscp", 6, false, func(m *Match, _ int) any { return (*dscp)(&m.IPv4.TOS) }},
		{"ecn", 2, false, func(m *Match, _ int) any { return (*ecn)(&m.IPv4.TOS) }},
		{"ttl", 8, false, func(m *Match, _ int) any { return &m.IPv4.TTL }},
		{"frag", 0, false, func(m *Match, _ int) any { return &m.IPv4.Fragment }},
	}},
	{name: "ipv6", has: func(m *Match) bool { return m.IPv6 != nil }, add: func(m *Match) { m.IPv6 = new(IPv6) }, fields: []field{
		{"src", 128, false, func(m *Match, _ int) any { return &m.IPv6.Src }},
		{"dst", 128, false, func(m *Match, _ int) any { return &m.IPv6.Dst }},
		{"label", 20, true, func(m *Match, _ int) any { return &m.IPv6.FlowLabel }},
		{"nexthdr", 8, false, func(m *Match, _ int) any { return &m.IPv6.NextHeader }},
		{"tclass", 8, true, func(m *Match, _ int) any { return &m.IPv6.TrafficClass }},
		{"dscp", 6, false, func(m *Match, _ int) any { return (*dscp)(&m.IPv6.TrafficClass) }},
		{"ecn", 2, false, func(m *Match, _ int) any { return (*ecn)(&m.IPv6.TrafficClass) }},
		{"hoplimit", 8, false, func(m *Match, _ int) any { return &m.IPv6.HopLimit }},
		{"frag", 0, false, func(m *Match, _ int) any { return &m.IPv6.Fragment }},
	}},
	{name: "tcp", has: func(m *Match) bool { return m.TCP != nil }, add: func(m *Match) { m.TCP = new(TCP) }, fields: []field{
		{"sport", 16, false, func(m *Match, _ int) any { return &m.TCP.Src }},
		{"dport", 16, false, func(m *Match, _ int) any { return &m.TCP.Dst }},
		{"flags", 12, false, func(m *Match, _ int) any { return &m.TCP.Flags }},
	}},
	{name: "udp", has: func(m *Match) bool { return m.UDP != nil }, add: func(m *Match) { m.UDP = new(Ports) }, fields: []field{
		{"sport", 16, false, func(m *Match, _ int) any { return &m.UDP.Src }},
		{"dport", 16, false, func(m *Match, _ int) any { return &m.UDP.Dst }},
	}},
	{name: "sctp", has: func(m *Match) bool { return m.SCTP != nil }, add: func(m *Match) { m.SCTP = new(SCTP) }, fields: []field{
		{"sport", 16, false, func(m *Match, _ int) any { return &m.SCTP.Src }},
		{"dport", 16, false, func(m *Match, _ int) any { return &m.SCTP.Dst }},
		{"vtag", 32, true, func(m *Match, _ int) any { return &m.SCTP.Tag }},
	}},
	{name: "icmp", has: func(m *Match) bool { return m.ICMP != nil }, add: func(m *Match) { m.ICMP = new(ICMP) }, fields: []field{
		{"type", 8, false, func(m *Match, _ int) any { return &m.ICMP.Type }},
		{"code", 8, false, func(m *Match, _ int) any { return &m.ICMP.Code }},
	}},
	{name: "esp", has: func(m *Match) bool { return m.ESP != nil }, add: func(m *Match) { m.ESP = new(ESP) }, fields: []field{
		{"spi", 32, true, func(m *Match, _ int) any { return &m.ESP.SPI }},
	}},
	{name: "ah", has: func(m *Match) bool { return m.AH != nil }, add: func(m *Match) { m.AH = new(AH) }, fields: []field{
		{"spi", 32, true, func(m *Match, _ int) any { return &m.AH.SPI }},
	}},
	{name: wordIncomplete, has: func(m *Match) bool { return m.Incomplete }, add: func(m *Match) { m.Incomplete = true }},
	{name: "vxlan", has: func(m *Match) bool { return m.VXLAN != nil }, add: func(m *Match) { m.VXLAN = new(VXLAN) }, fields: []field{
		{"vni", 24, false, func(m *Match, _ int) any { return &m.VXLAN.VNI }},
	}, inner: func(m *Match) **Match { return &m.VXLAN.Inner }},
	{name: "gre", has: func(m *Match) bool { return m.GRE != nil }, add: func(m *Match) { m.GRE = new(GRE) }, fields: []field{
		{"key", 32, false, func(m *Match, _ int) any { return &m.GRE.Key }},
	}, inner: func(m *Match) **Match { return &m.GRE.Inner }},
	{name: "ipip", has: func(m *Match) bool { return m.IPIP != nil }, add: func(m *Match) { m.IPIP = new(IPIP) },
		inner: func(m *Match) **Match { return &m.IPIP.Inner }},
	{name: "geneve", has: func(m *Match) bool { return m.Geneve != nil }, add: func(m *Match) { m.Geneve = new(Geneve) }, fields: []field{
		{"vni", 24, false, func(m *Match, _ int) any { return &m.Geneve.VNI }},
	}, inner: func(m *Match) **Match { return &m.Geneve.Inner }},
	{name: "gtpu", has: func(m *Match) bool { return m.GTPU != nil }, add: func(m *Match) { m.GTPU = new(GTPU) }, fields: []field{
		{"teid", 32, true, func(m *Match, _ int) any { return &m.GTPU.TEID }},
	}, inner: func(m *Match) **Match { return &m.GTPU.Inner }},
	{name: "mplsudp", has: func(m *Match) bool { return m.MPLSUDP != nil }, add: func(m *Match) { m.MPLSUDP = new(MPLSUDP) }, fields: []field{
		{"label", 20, false, func(m *Match, _ int) any { return &m.MPLSUDP.Label }},
		{"tc", 3, false, func(m *Match, _ int) any { return &m.MPLSUDP.TC }},
		{"bos", 1, false, func(m *Match, _ int) any { return &m.MPLSUDP.Bottom }},
		{"ttl", 8, false, func(m *Match, _ int) any { return &m.MPLSUDP.TTL }},
	}, inner: func(m *Match) **Match { return &m.MPLSUDP.Inner }},
}

// Words that are neither a clause nor a field.
const (
	wordAny   = "any"   // the empty match
	wordInner = "inner" // the next clauses describe the headers inside the tunnel

	wordUntagged   = "untagged" // clauses of no fields
	wordIncomplete = "incomplete"
)

// maxTags is how many VLAN tags the backends parse.
const maxTags = 2

var fragmentWords = [...]string{FragmentAny: "any", FragmentNo: "no", FragmentYes: "yes", FragmentFirst: "first", FragmentLater: "later"}

func clauseNamed(name string) *clause {
	for i := range clauses {
		if clauses[i].name == name {
			return &clauses[i]
		}
	}
	return nil
}

// tunnels returns the words of the clauses that "inner" may follow.
func tunnels() []string {
	var names []string
	for i := range clauses {
		if clauses[i].inner != nil {
			names = append(names, clauses[i].name)
		}
	}
	return names
}

func (c *clause) field(name string) *field {
	for i := range c.fields {
		if c.fields[i].name == name {
			return &c.fields[i]
		}
	}
	return nil
}

// Clauses returns the words for protocols in the text form, in the order of [Match.String].
func Clauses() []string {
	names := make([]string, len(clauses))
	for i := range clauses {
		names[i] = clauses[i].name
	}
	return names
}

// Fields returns the words for the fields of a clause, in the order of [Match.String]. For a tunnel, the last is "inner".
// Fields returns nil for a word that is not a clause.
func Fields(clause string) []string {
	c := clauseNamed(clause)
	if c == nil {
		return nil
	}
	names := make([]string, 0, len(c.fields)+1)
	for i := range c.fields {
		names = append(names, c.fields[i].name)
	}
	if c.inner != nil {
		names = append(names, wordInner)
	}
	return names
}

// part is some bits of another field of the clause: DSCP and ECN are parts of the type of service. A match that asks for
// exactly one part is written by the word of the part, and any other by the word of the whole field.
type part struct {
	of          *Masked[uint8]
	shift, bits int
}

// dscp and ecn are the type of service, of which the field is a part.
type (
	dscp Masked[uint8]
	ecn  Masked[uint8]
)

// partOf returns the part that a field is. ok is false for other fields.
func partOf(ref any) (p part, ok bool) {
	switch r := ref.(type) {
	case *dscp:
		return part{(*Masked[uint8])(r), 2, 6}, true
	case *ecn:
		return part{(*Masked[uint8])(r), 0, 2}, true
	}
	return part{}, false
}

// exact reports whether the match asks for all bits of the part, and for no others of the field.
func (p part) exact() bool { return uint32(p.of.Mask) == ones(p.bits)<<p.shift }

// sharing returns the fields of a clause that have bits of the field, by name.
func (f *field) sharing() []string {
	switch f.name {
	case "tos", "tclass":
		return []string{"dscp", "ecn"}
	case "dscp", "ecn":
		return []string{"tos", "tclass"}
	}
	return nil
}

// number returns a *Masked of any width, or a part, as 32 bits. ok is false for other fields.
func number(ref any) (value, mask uint32, ok bool) {
	switch p := ref.(type) {
	case *Masked[uint8]:
		return uint32(p.Value), uint32(p.Mask), true
	case *Masked[TCPFlags]:
		return uint32(p.Value), uint32(p.Mask), true
	case *Masked[uint16]:
		return uint32(p.Value), uint32(p.Mask), true
	case *Masked[uint32]:
		return p.Value, p.Mask, true
	}
	if p, is := partOf(ref); is {
		return uint32(p.of.Value) >> p.shift & ones(p.bits), uint32(p.of.Mask) >> p.shift & ones(p.bits), true
	}
	return 0, 0, false
}

// setNumber sets a *Masked of any width, or a part. The caller has checked that both numbers fit.
func setNumber(ref any, value, mask uint32) {
	switch p := ref.(type) {
	case *Masked[uint8]:
		p.Value, p.Mask = uint8(value), uint8(mask)
	case *Masked[TCPFlags]:
		p.Value, p.Mask = TCPFlags(value), TCPFlags(mask)
	case *Masked[uint16]:
		p.Value, p.Mask = uint16(value), uint16(mask)
	case *Masked[uint32]:
		p.Value, p.Mask = value, mask
	}
	if p, is := partOf(ref); is {
		others := ^uint8(ones(p.bits) << p.shift)
		p.of.Value = p.of.Value&others | uint8(value<<p.shift)
		p.of.Mask = p.of.Mask&others | uint8(mask<<p.shift)
	}
}

// ones returns the mask of a whole field of up to 32 bits.
func ones(bits int) uint32 { return uint32(1)<<bits - 1 }
