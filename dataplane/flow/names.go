package flow

import (
	"fmt"
	"maps"
	"slices"
)

// The names that a user may write for a number. [Match.String] prints the number, as "nft -n" does.
//
// A name has one number, whatever the protocol: IANA assigns a name to one port.

// services has the ports of services: the well-known ports of IANA's registry, its registered ports that hosts have in
// /etc/services, and a few names that users write for these.
var services = map[string]uint32{
	"acr-nema": 104, "afpovertcp": 548, "afs3-bos": 7007, "afs3-callback": 7001, "afs3-fileserver": 7000, "afs3-kaserver": 7004,
	"afs3-prserver": 7002, "afs3-rmtsys": 7009, "afs3-update": 7008, "afs3-vlserver": 7003, "afs3-volser": 7005,
	"amanda": 10080, "amqp": 5672, "amqps": 5671, "asf-rmcp": 623, "auth": 113, "babel": 6696, "bacula-dir": 9101,
	"bacula-fd": 9102, "bacula-sd": 9103, "bfd-control": 3784, "bfd-echo": 3785, "bfd-multi-ctl": 4784, "bgp": 179, "biff": 512,
	"bootpc": 68, "bootps": 67, "cfengine": 5308, "chargen": 19, "cisco-sccp": 2000, "clearcase": 371, "cmip-agent": 164,
	"cmip-man": 163, "coap": 5683, "coaps": 5684, "codaauth2": 370, "codasrv": 2432, "codasrv-se": 2433, "cvspserver": 2401,
	"daap": 3689, "datametrics": 1645, "daytime": 13, "db-lsp": 17500, "dcap": 22125, "dhcp": 67, "dhcpv6-client": 546,
	"dhcpv6-server": 547, "diameter": 3868, "dicom": 11112, "dict": 2628, "discard": 9, "distcc": 3632, "dns": 53, "domain": 53,
	"domain-s": 853, "e1-interface": 38462, "echo": 7, "epmap": 135, "epmd": 4369, "etcd-client": 2379, "etcd-server": 2380,
	"exec": 512, "f1-control": 38472, "f5-globalsite": 2792, "f5-iquery": 4353, "finger": 79, "font-service": 7100,
	"freeciv": 5556, "fsp": 21, "ftp": 21, "ftp-data": 20, "ftps": 990, "ftps-data": 989, "gdomap": 538, "gds-db": 3050,
	"geneve": 6081, "gnunet": 2086, "gnutella-rtr": 6347, "gnutella-svc": 6346, "gopher": 70, "gpsd": 2947, "gris": 2135,
	"groupwise": 1677, "gsidcap": 22128, "gsiftp": 2811, "gsigatekeeper": 2119, "gtp-control": 2123, "gtp-user": 2152,
	"hkp": 11371, "http": 80, "http-alt": 8080, "https": 443, "https-alt": 8443, "iax": 4569, "icpv2": 3130, "imap": 143,
	"imap2": 143, "imaps": 993, "ingreslock": 1524, "ipp": 631, "ipsec-nat-t": 4500, "ipx": 213, "ircs-u": 6697, "isakmp": 500,
	"iscsi": 860, "iscsi-target": 3260, "isns": 3205, "iso-tsap": 102, "kerberos": 88, "kerberos-adm": 749, "kermit": 1649,
	"klogin": 543, "kpasswd": 464, "kshell": 544, "l2f": 1701, "l2tp": 1701, "ldap": 389, "ldaps": 636, "ldp": 646,
	"login": 513, "lotusnote": 1352, "m2pa": 3565, "m2ua": 2904, "m3ua": 2905, "mailq": 174, "mdns": 5353, "microsoft-ds": 445,
	"mon": 2583, "mpls-udp": 6635, "mqtt": 1883, "ms-sql-m": 1434, "ms-sql-s": 1433, "ms-wbt-server": 3389, "mtn": 4691,
	"mysql": 3306, "mysql-proxy": 6446, "nbd": 10809, "netbios-dgm": 138, "netbios-ns": 137, "netbios-ssn": 139,
	"netconf-ssh": 830, "netstat": 15, "nfs": 2049, "nfsrdma": 20049, "ng-control": 38412, "nntp": 119, "nntps": 563,
	"nqs": 607, "ntalk": 518, "ntp": 123, "ntske": 4460, "nut": 3493, "nvme": 4420, "nvme-disc": 8009, "openvpn": 1194,
	"pawserv": 345, "pfcp": 8805, "pop3": 110, "pop3s": 995, "postgresql": 5432, "pptp": 1723, "printer": 515, "proofd": 1093,
	"ptp-event": 319, "ptp-general": 320, "puppet": 8140, "qmqp": 628, "qmtp": 209, "qotd": 17, "quic": 443, "radius": 1812,
	"radius-acct": 1813, "radmin-port": 4899, "rdp": 3389, "redis": 6379, "remctl": 4373, "rmiregistry": 1099, "roce": 4791,
	"rocev2": 4791, "rootd": 1094, "route": 520, "rpc2portmap": 369, "rsync": 873, "rtcm-sc104": 2101, "rtsp": 554,
	"s1-control": 36412, "sa-msg-port": 1646, "saft": 487, "sge-execd": 6445, "sge-qmaster": 6444, "shell": 514, "sieve": 4190,
	"silc": 706, "sip": 5060, "sip-tls": 5061, "smtp": 25, "smux": 199, "snmp": 161, "snmp-trap": 162, "snmptrap": 162,
	"snpp": 444, "socks": 1080, "ssh": 22, "stun": 3478, "stuns": 5349, "sua": 14001, "submission": 587, "submissions": 465,
	"sunrpc": 111, "suucp": 4031, "svn": 3690, "svrloc": 427, "syslog": 514, "syslog-tls": 6514, "sysrqd": 4094, "systat": 11,
	"tacacs": 49, "talk": 517, "tcpmux": 1, "telnet": 23, "telnets": 992, "tftp": 69, "time": 37, "tinc": 655, "uucp": 540,
	"venus": 2430, "venus-se": 2431, "vxlan": 4789, "who": 513, "whois": 43, "wnn6": 22273, "x11": 6000, "x2-control": 36422,
	"xdmcp": 177, "xmms2": 9667, "xmpp-client": 5222, "xmpp-server": 5269, "xn-control": 38422, "z3950": 210,
	"zabbix-agent": 10050, "zabbix-trapper": 10051, "zserv": 346,
}

// datagrams lists the services that use UDP.
var datagrams = []string{
	"bootpc", "bootps", "dhcp", "dhcpv6-client", "dhcpv6-server", "dns", "domain", "geneve", "gtp-control", "gtp-user", "isakmp", "l2tp", "mdns", "ntp",
	"pfcp", "quic", "radius", "radius-acct", "roce", "rocev2", "sip", "snmp", "snmptrap", "stun", "syslog", "tftp", "vxlan",
}

// protocols has the protocols above IP, by IANA's keyword in lower case. "ipip" is missing: IANA calls 94 so, and everybody
// else 4.
var protocols = map[string]uint32{
	"ah": 51, "dccp": 33, "egp": 8, "eigrp": 88, "esp": 50, "etherip": 97, "gre": 47, "hip": 139, "hopopt": 0, "icmp": 1, "icmpv6": 58, "igmp": 2, "igp": 9,
	"ipcomp": 108, "ipencap": 4, "ipv6": 41, "ipv6-frag": 44, "ipv6-icmp": 58, "ipv6-nonxt": 59, "ipv6-opts": 60, "ipv6-route": 43, "isis": 124, "l2tp": 115,
	"manet": 138, "mobility-header": 135, "mpls-in-ip": 137, "ospf": 89, "pim": 103, "rsvp": 46, "sctp": 132, "shim6": 140, "tcp": 6, "udp": 17,
	"udplite": 136, "vrrp": 112,
}

// etherTypes has the types of Ethernet frames. The types of VLAN tags are missing, because "type" is the one behind the tags.
var etherTypes = map[string]uint32{
	"aoe": 0x88a2, "arp": EtherARP, "eapol": 0x888e, "ethercat": 0x88a4, "fcoe": 0x8906, "ipv4": EtherIPv4, "ipv6": EtherIPv6, "lacp": 0x8809, "lldp": 0x88cc,
	"macsec": 0x88e5, "mpls": EtherMPLS, "pppoe": 0x8864, "pppoe-discovery": 0x8863, "profinet": 0x8892, "ptp": 0x88f7, "rarp": 0x8035,
}

// operations has those of ARP (RFC 826).
var operations = map[string]uint32{"request": 1, "reply": 2}

// codePoints has the values of DSCP (RFC 2474, 2597, 3246, 5865, 8622).
var codePoints = map[string]uint32{"ef": 46, "va": 44, "be": 0, "le": 1,
	"af11": 10, "af12": 12, "af13": 14, "af21": 18, "af22": 20, "af23": 22, "af31": 26, "af32": 28, "af33": 30, "af41": 34, "af42": 36, "af43": 38,
	"cs0": 0, "cs1": 8, "cs2": 16, "cs3": 24, "cs4": 32, "cs5": 40, "cs6": 48, "cs7": 56,
}

// congestion has the values of ECN (RFC 3168).
var congestion = map[string]uint32{"not-ect": 0, "ect1": 1, "ect0": 2, "ce": 3}

// icmpNumber has the type of a name in ICMP and in ICMPv6, or none.
type icmpNumber struct{ v4, v6 int }

const none = -1

// icmpTypes has the types by IANA's and by nft's names.
var icmpTypes = map[string]icmpNumber{
	"echo-reply":              {0, 129},
	"destination-unreachable": {3, 1},
	"source-quench":           {4, none},
	"redirect":                {5, 137},
	"echo-request":            {8, 128},
	"router-advertisement":    {9, 134},
	"router-solicitation":     {10, 133},
	"time-exceeded":           {11, 3},
	"parameter-problem":       {12, 4},
	"timestamp-request":       {13, none},
	"timestamp-reply":         {14, none},
	"info-request":            {15, none},
	"info-reply":              {16, none},
	"address-mask-request":    {17, none},
	"address-mask-reply":      {18, none},
	"packet-too-big":          {none, 2},
	"mld-listener-query":      {none, 130},
	"mld-listener-report":     {none, 131},
	"mld-listener-done":       {none, 132},
	"nd-router-solicit":       {none, 133},
	"nd-router-advert":        {none, 134},
	"nd-neighbor-solicit":     {none, 135},
	"neighbor-solicitation":   {none, 135},
	"nd-neighbor-advert":      {none, 136},
	"neighbor-advertisement":  {none, 136},
	"nd-redirect":             {none, 137},
	"mld2-listener-report":    {none, 143},
}

// isProtocol reports whether the word names a protocol above IP or above Ethernet.
func isProtocol(word string) bool {
	_, above := protocols[word]
	_, beside := etherTypes[word]
	return above || beside
}

// names returns the names for values of the field, or nil if it has none. The names of an ICMP type depend on more than the field:
// see parser.icmpName.
func (f *field) names() map[string]uint32 {
	if _, isPort := f.ref(full, 0).(*Port); isPort {
		return services
	}
	switch {
	case f.name == "proto", f.name == "nexthdr":
		return protocols
	case f.name == "op":
		return operations
	case f.name == "dscp":
		return codePoints
	case f.name == "ecn":
		return congestion
	case f.name == "type" && f.bits == 16:
		return etherTypes
	}
	return nil
}

// isICMPType reports whether the field is the type of icmp.
func (f *field) isICMPType() bool { return f.name == "type" && f.bits == 8 }

// nameList returns the names for values of the field in alphabetical order.
func (f *field) nameList() []string {
	if f.isICMPType() {
		return slices.Sorted(maps.Keys(icmpTypes))
	}
	return slices.Sorted(maps.Keys(f.names()))
}

// hasWord reports whether the field takes this word as a value, even if it is a clause or a field elsewhere.
func (f *field) hasWord(text string) bool {
	if f.isFragment() {
		return text == wordAny
	}
	_, ok := f.names()[text]
	return ok
}

// icmpName is the name of an ICMP type in the text. Its number is known when the match has been read: the family may follow.
type icmpName struct {
	name  string
	match *Match
	at    element
	set   bool // it is a value of a set
	value int  // which of them
}

// resolve sets the type that the name means in its match.
func (p *parser) resolve(n icmpName) {
	m, number := n.match, icmpTypes[n.name]
	v4 := m.IPv6 == nil && m.AdmitsEtherType(EtherIPv4)
	v6 := m.IPv4 == nil && m.AdmitsEtherType(EtherIPv6)
	typ := max(number.v4, number.v6)

	switch {
	case v4 == v6 && number.v4 != none && number.v6 != none:
		p.failAt(n.at, fmt.Sprintf("%s is type %d over IPv4 and type %d over IPv6", n.name, number.v4, number.v6),
			fmt.Sprintf(`did you mean "ipv4 icmp type %s" or "ipv6 icmp type %s"?`, n.name, n.name))
	case v4 == v6 && number.v4 != none: // without the clause, the number would match another type over the other family
		p.failAt(n.at, fmt.Sprintf("%s is type %d of ICMP over IPv4 alone", n.name, typ), fmt.Sprintf(`did you mean "ipv4 icmp type %s"?`, n.name))
	case v4 == v6:
		p.failAt(n.at, fmt.Sprintf("%s is type %d of ICMPv6 alone", n.name, typ), fmt.Sprintf(`did you mean "ipv6 icmp type %s"?`, n.name))
	case v4:
		if typ = number.v4; typ == none {
			p.failAt(n.at, fmt.Sprintf("ICMP over IPv4 has no type of this name: it is %d of ICMPv6", number.v6), "write ipv6, or a number")
		}
	case v6:
		if typ = number.v6; typ == none {
			p.failAt(n.at, fmt.Sprintf("ICMPv6 has no type of this name: it is %d of ICMP over IPv4", number.v4), "write ipv4, or a number")
		}
	}
	if n.set {
		m.choice("icmp", 0, "type").Values[n.value] = Value{Value: Number{Lo: uint64(typ)}, Mask: whole(8)}
		return
	}
	m.ICMP.Type = Masked[uint8]{Value: uint8(typ), Mask: 0xff}
}

// splitRange splits first-last, where both may be names. A name may have hyphens itself: of several splits, the first counts whose halves
// are both ports.
func (f *field) splitRange(text string) (first, last string, ok bool) {
	for at := range len(text) {
		if text[at] != '-' {
			continue
		}
		if !ok {
			first, last, ok = text[:at], text[at+1:], true // for the error
		}
		_, wrongFirst := f.parseDigits(text[:at])
		_, wrongLast := f.parseDigits(text[at+1:])
		if wrongFirst == nil && wrongLast == nil {
			return text[:at], text[at+1:], true
		}
	}
	return first, last, ok
}
