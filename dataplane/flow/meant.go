package flow

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A wish that no match can have gets one of these. The nearest word would ask for something else: "tcp" for "!tcp".
const (
	excludesNothing = "a match excludes nothing: give the packets to exclude to a flow of a lower priority number"
	hasOneValue     = "a field has one value: make a flow of each"
	comparesNoSizes = "a match compares no sizes: write value/mask, or make a flow of each value"
	hasNoBrackets   = "leave the brackets out: a packet must match every clause"
	hasNoRange      = "an address has no range: write a prefix, or make a flow of each address"
)

// operators are what other languages write before a value, the longer first.
var operators = []struct{ text, meaning string }{
	{"!=", "!="}, {"<>", "!="}, {"==", "="}, {">=", ">="}, {"<=", "<="}, {"!", "!="}, {">", ">"}, {"<", "<"}, {"=", "="},
}

var operatorWords = map[string]string{"ne": "!=", "not": "!=", "eq": "=", "is": "=", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}

// cutOperator cuts the operator off the beginning of a word. It is empty if there is none.
func cutOperator(text string) (operator, rest string) {
	if operator := operatorWords[text]; operator != "" {
		return operator, ""
	}
	for _, o := range operators {
		if rest, ok := strings.CutPrefix(text, o.text); ok {
			return o.meaning, rest
		}
	}
	return "", text
}

// services are the ports with a name that people write.
var services = map[string]uint16{
	"bgp": 179, "dhcp": 67, "dns": 53, "domain": 53, "ftp": 21, "http": 80, "https": 443, "imap": 143, "imaps": 993, "kerberos": 88, "ldap": 389,
	"ldaps": 636, "mqtt": 1883, "mysql": 3306, "nfs": 2049, "ntp": 123, "postgresql": 5432, "quic": 443, "rdp": 3389, "redis": 6379,
	"roce": 4791, "rocev2": 4791, "sip": 5060, "smtp": 25, "snmp": 161, "ssh": 22, "syslog": 514, "telnet": 23,
}

// datagrams are the services that use UDP.
var datagrams = []string{"dhcp", "dns", "domain", "ntp", "quic", "roce", "rocev2", "sip", "snmp", "syslog"}

// protocols are those above IP that have a number and no clause, and etherTypes those above Ethernet.
var (
	protocols  = map[string]uint8{"ah": 51, "dccp": 33, "eigrp": 88, "igmp": 2, "ipip": 4, "ospf": 89, "pim": 103, "rsvp": 46, "sctp": 132, "udplite": 136, "vrrp": 112}
	etherTypes = map[string]uint16{"arp": 0x0806, "eapol": 0x888e, "lacp": 0x8809, "lldp": 0x88cc, "macsec": 0x88e5, "pppoe": 0x8864, "ptp": 0x88f7, "rarp": 0x8035}
)

// synonyms are the clauses with another name in other tools.
var synonyms = map[string]string{"ip": "ipv4", "inet": "ipv4", "ip6": "ipv6", "inet6": "ipv6", "ether": "eth", "ethernet": "eth", "tagged": "vlan", "dot1q": "vlan"}

// aliases are names of the fields of addresses in other tools.
var aliases = map[string]string{
	"saddr": "src", "srcip": "src", "src_ip": "src", "source": "src", "nw_src": "src", "ip_src": "src",
	"daddr": "dst", "dstip": "dst", "dst_ip": "dst", "destination": "dst", "nw_dst": "dst", "ip_dst": "dst",
}

// numbered are the clauses with a field that a number behind the clause most likely stands for.
var numbered = map[string]string{"vlan": "id", "vxlan": "vni", "gre": "key", "mpls": "label", "esp": "spi", "icmp": "type", "tcp": "dport", "udp": "dport"}

func meant(text string) string { return fmt.Sprintf("did you mean %q?", strings.TrimSpace(text)) }

// behind writes a field of a clause, after the clause that is open.
func behind(open *clause, clause, rest string) string {
	if open != nil && open.name == clause {
		return meant(rest)
	}
	return meant(clause + " " + rest)
}

// foreignValue returns the suggestion for a value that a field does not take. next is the word behind it, and taken says
// that next belongs to the value.
func (f *field) foreignValue(text, next string) (suggestion string, taken bool) {
	operator, operand := cutOperator(text)
	if operator != "" && operand == "" && next != "" {
		operand, taken = next, true
	}
	switch {
	case operator == "!=":
		return excludesNothing, taken
	case operator == "=" && f.accepts(operand):
		return meant(f.name + " " + operand), taken
	case operator != "":
		return f.compared(operator, operand), taken
	case strings.HasPrefix(text, "{"):
		return hasOneValue, false
	case strings.HasPrefix(text, "(") || strings.HasSuffix(text, ")"):
		return hasNoBrackets, false
	}
	if list := strings.Split(text, ","); len(list) > 1 && f.accepts(list[0]) {
		return fmt.Sprintf("%s: %q, %q", hasOneValue, f.name+" "+clip(list[0]), f.name+" "+clip(list[1])), false
	}
	return f.named(text), false
}

// accepts reports whether the field takes a value.
func (f *field) accepts(text string) bool { return f.parse(f.ref(newFull(), 0), text) == nil }

// compared returns the range of ports that a comparison means.
func (f *field) compared(operator, operand string) string {
	port, err := strconv.ParseUint(operand, 10, 16)
	if _, is := f.ref(full, 0).(*Port); !is || err != nil {
		return comparesNoSizes
	}
	lo, hi := uint64(0), uint64(ones(f.bits))
	switch operator {
	case ">":
		lo = port + 1
	case ">=":
		lo = port
	case "<":
		hi = port - 1
	case "<=":
		hi = port
	}
	if lo > hi || hi > uint64(ones(f.bits)) {
		return comparesNoSizes
	}
	return meant(fmt.Sprintf("%s %d-%d", f.name, lo, hi))
}

// named returns the suggestion for a name in place of a number, and for another notation of a range.
func (f *field) named(text string) string {
	lower := strings.ToLower(text)
	switch f.ref(full, 0).(type) {
	case *Port:
		if port, ok := services[lower]; ok {
			return meant(strconv.Itoa(int(port)))
		}
		for _, sep := range []string{":", "..", "-"} {
			first, last, ok := strings.Cut(text, sep)
			if first == "" {
				first = "0"
			}
			if last == "" {
				last = "65535"
			}
			if ok && f.accepts(first+"-"+last) {
				return meant(first + "-" + last)
			}
		}
	case *Addr4, *Addr6:
		first, last, ok := strings.Cut(text, "-")
		if ok && f.accepts(first) && (f.accepts(last) || strings.Trim(last, "0123456789") == "") {
			return hasNoRange
		}
	}
	switch f.name {
	case "proto", "nexthdr":
		if n, ok := protocols[lower]; ok {
			return meant(strconv.Itoa(int(n)))
		}
		if t, ok := etherTypes[lower]; ok {
			return behind(nil, "eth", fmt.Sprintf("type 0x%04x", t))
		}
	case "type":
		if t, ok := etherTypes[lower]; ok && f.bits == 16 {
			return meant(fmt.Sprintf("0x%04x", t))
		}
	}
	return ""
}

// foreignWord returns the suggestion for a word of another language where a clause or a field stands. value is the next
// word, or empty.
func foreignWord(text, value string, open *clause) string {
	lower := strings.ToLower(text)
	if operator, _ := cutOperator(text); operator == "!=" {
		return excludesNothing
	}
	if left, right, ok := strings.Cut(text, "="); ok && left != "" {
		return assignment(left, right, value, open)
	}
	if strings.ContainsAny(text, "(){}") {
		return hasNoBrackets
	}
	if name, ok := aliases[lower]; ok {
		return aliased(name, value, open)
	}
	if port, ok := services[lower]; ok {
		if open != nil && (open.name == "tcp" || open.name == "udp") {
			return meant(fmt.Sprintf("dport %d", port))
		}
		over := "tcp"
		if slices.Contains(datagrams, lower) {
			over = "udp"
		}
		return meant(fmt.Sprintf("%s dport %d", over, port))
	}
	if n, ok := protocols[lower]; ok {
		if open != nil && open.name == "ipv6" {
			return meant(fmt.Sprintf("nexthdr %d", n))
		}
		return behind(open, "ipv4", fmt.Sprintf("proto %d", n))
	}
	if t, ok := etherTypes[lower]; ok {
		return behind(open, "eth", fmt.Sprintf("type 0x%04x", t))
	}
	if clause := synonyms[lower]; clause != "" {
		return meant(clause)
	}
	switch lower {
	case "dscp", "ecn", "diffserv":
		return trafficClass(lower, value, open)
	case "icmp6", "icmpv6":
		return meant("ipv6 icmp")
	case "complete":
		return "leave it out: a match asks for incomplete headers, or for fields"
	case "all", "*", "everything":
		return meant(wordAny)
	}
	if open == nil {
		return ""
	}
	if open.name == "eth" && lower == "proto" {
		return meant("type " + clip(value))
	}
	if open.name == "ipv6" && (lower == "tc" || lower == "tos") {
		return meant("tclass " + clip(value))
	}
	if open.name == "ipv6" && lower == "ttl" {
		return meant("hoplimit " + clip(value))
	}
	if open.name == "ipv6" && lower == "proto" {
		return meant("nexthdr " + clip(value))
	}
	if f := open.field(numbered[open.name]); f != nil && f.accepts(text) {
		return meant(f.name + " " + clip(text))
	}
	return ""
}

// assignment returns the suggestion for "dport=80", "dport==80" and "dport!=80".
func assignment(left, right, value string, open *clause) string {
	if strings.HasSuffix(left, "!") {
		return excludesNothing
	}
	right = strings.TrimPrefix(right, "=")
	if right == "" {
		right = value
	}
	if open != nil && open.field(left) != nil {
		return meant(left + " " + clip(right))
	}
	for i := range clauses {
		if f := clauses[i].field(left); f != nil && f.accepts(right) {
			return meant(clauses[i].name + " " + left + " " + clip(right))
		}
	}
	return ""
}

// aliased returns the suggestion for the field of an address that has another name here.
func aliased(name, value string, open *clause) string {
	if open != nil && open.field(name) != nil {
		return meant(name + " " + clip(value))
	}
	family := "ipv4"
	addr, _, _ := strings.Cut(value, "/")
	if ip, err := netip.ParseAddr(addr); err == nil && ip.Is6() {
		family = "ipv6"
	} else if err != nil && strings.Count(addr, ":") == 5 {
		family = "eth"
	}
	return meant(family + " " + name + " " + clip(value))
}

// codePoints are the values of DSCP that have a name.
var codePoints = map[string]uint64{"ef": 46, "va": 44, "be": 0, "le": 1,
	"af11": 10, "af12": 12, "af13": 14, "af21": 18, "af22": 20, "af23": 22, "af31": 26, "af32": 28, "af33": 30, "af41": 34, "af42": 36, "af43": 38,
	"cs0": 0, "cs1": 8, "cs2": 16, "cs3": 24, "cs4": 32, "cs5": 40, "cs6": 48, "cs7": 56,
}

// trafficClass returns the suggestion for a part of the traffic class.
func trafficClass(part, value string, open *clause) string {
	shift, mask := 2, uint64(0xfc)
	if part == "ecn" {
		shift, mask = 0, 0x03
	}
	n, err := strconv.ParseUint(value, 0, 8)
	if point, ok := codePoints[strings.ToLower(value)]; ok && part != "ecn" {
		n, err = point, nil
	}
	if err != nil || n<<shift&^mask != 0 {
		return fmt.Sprintf("write the bits of %s as value/mask of the whole byte, as tos 0xb8/0xfc of ipv4 or tclass 0xb8/0xfc of ipv6", part)
	}
	bits := fmt.Sprintf("0x%02x/0x%02x", n<<shift, mask)
	if open != nil && open.name == "ipv6" {
		return meant("tclass " + bits)
	}
	return behind(open, "ipv4", "tos "+bits)
}
