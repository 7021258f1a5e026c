package flow

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/internal/spelling"
)

// unknown explains a word that is neither a clause nor a field of the open clause. value is the next word, or empty if
// that cannot be a value.
func unknown(text, value string, open *clause) (message, suggestion string) {
	known := Clauses()
	expected := "a protocol (" + oneOf(known) + ")"
	if open != nil {
		fields := Fields(open.name)
		expected = fmt.Sprintf("a field of %s (%s) or a protocol", open.name, oneOf(fields))
		known = append(fields, known...)
	}
	message = "expected " + expected
	if suggestion := elsewhere(text, value); suggestion != "" {
		return message, suggestion
	}
	if suggestion := foreignWord(text, value, open); suggestion != "" {
		return message, suggestion
	}
	var owners []string
	for i := range clauses {
		if clauses[i].field(text) != nil {
			owners = append(owners, clauses[i].name)
		}
	}
	switch {
	case open != nil && open.name == "vlan" && text == "none":
		return message, fmt.Sprintf("did you mean %q?", wordUntagged)
	case open != nil && open.name == "tcp" && slices.Contains(flagWords[:], text):
		return message, fmt.Sprintf("did you mean %q?", "flags "+text+"/"+text)
	case open != nil && open.field("sport") != nil && (text == "src" || text == "dst"):
		return message, fmt.Sprintf("did you mean %q? addresses belong to ipv4 and ipv6", text[:1]+"port")
	case len(owners) > 0:
		addr, _, _ := strings.Cut(value, "/")
		if ip, err := netip.ParseAddr(addr); err == nil && ip.Is4() && slices.Contains(owners, "ipv4") {
			return message, fmt.Sprintf("did you mean %q?", "ipv4 "+text+" "+clip(value))
		} else if err == nil && slices.Contains(owners, "ipv6") {
			return message, fmt.Sprintf("did you mean %q?", "ipv6 "+text+" "+clip(value))
		}
		suggestion = fmt.Sprintf("%q is a field of %s: write that first, as %q", text, oneOf(owners), owners[0]+" "+text)
	default:
		suggestion = didYouMean(text, known)
	}
	return message, suggestion
}

// elsewhere proposes a translation for words of tcpdump filters. It returns "" for other words.
func elsewhere(text, value string) string {
	addr, _, _ := strings.Cut(value, "/")
	if ip, err := netip.ParseAddr(text); err == nil {
		value, addr, text = text, ip.String(), "host"
	}
	switch text {
	case "and", "&&":
		return "leave it out: a packet must match every clause"
	case "or", "||":
		return "values of one field are a set (tcp dport {80, 443}); for other alternatives write a flow for each"
	case "port":
		return fmt.Sprintf("did you mean %q or %q, of tcp or udp?", strings.TrimSpace("dport "+clip(value)), strings.TrimSpace("sport "+clip(value)))
	case "host", "net":
		family := "ipv4"
		if ip, err := netip.ParseAddr(addr); err == nil && ip.Is6() {
			family = "ipv6"
		}
		return fmt.Sprintf("did you mean %q or %q?", strings.TrimSpace(family+" src "+clip(value)), strings.TrimSpace(family+" dst "+clip(value)))
	}
	return ""
}

// foreignWord proposes a translation for a word of another filter language in the place of a clause or a field. value is
// the next word, or empty.
func foreignWord(text, value string, open *clause) string {
	lower := strings.ToLower(text)
	if operator, rest := cutOperator(text); operator == "!=" {
		if open != nil && open.field(rest) != nil && value != "" {
			return meant(rest + " != " + clip(value))
		}
		return excludesNothing
	}
	if left, right, ok := strings.Cut(text, "="); ok && left != "" {
		return assignment(left, right, value, open)
	}
	if strings.ContainsAny(text, "(){}") {
		return hasNoBrackets
	}
	if open != nil {
		if field := namesake[open.name][lower]; field != "" {
			return meant(field + " " + clip(value))
		}
	}
	if name, ok := aliases[lower]; ok {
		return aliased(name, value, open)
	}
	if field := switched[lower]; field != "" {
		clause, field, _ := strings.Cut(field, " ")
		return behind(open, clause, field+" "+clip(value))
	}
	if clause := synonyms[lower]; clause != "" {
		return meant(clause)
	}
	if clauseNamed(lower) != nil {
		return meant(lower)
	}
	if lower == "icmp6" || lower == "icmpv6" || lower == "ipv6-icmp" {
		return meant("ipv6 icmp")
	}
	if open != nil && open.name == "icmp" {
		if name := spelling.Nearest(text, open.field("type").nameList()); name != "" {
			return meant("type " + name)
		}
	}
	if _, ok := services[lower]; ok {
		if open != nil && open.field("dport") != nil {
			return meant("dport " + lower)
		}
		over := "tcp"
		if slices.Contains(datagrams, lower) {
			over = "udp"
		}
		return meant(over + " dport " + lower)
	}
	if _, ok := protocols[lower]; ok {
		if open != nil && open.name == "ipv6" {
			return meant("nexthdr " + lower)
		}
		return behind(open, "ipv4", "proto "+lower)
	}
	if _, ok := etherTypes[lower]; ok {
		return behind(open, "eth", "type "+lower)
	}
	switch lower {
	case "erspan", "erspan2", "erspan3":
		return looksNotInside
	case "in_port", "iif", "iifname", "oif", "oifname":
		return namesInterface
	case "ct", "ct_state", "ct_mark", "ct_zone":
		return hasNoState
	case "limit", "quota":
		return hasNoLimit
	case "complete":
		return "leave it out: a match asks for incomplete headers, or for fields"
	case "all", "*", "everything":
		return meant(wordAny)
	}
	if open == nil {
		return ""
	}
	if f := open.field(numbered[open.name]); f != nil && f.accepts(text) {
		return meant(f.name + " " + clip(text))
	}
	return ""
}

// assignment proposes a translation for "dport=80", "dport==80" and "dport!=80".
func assignment(left, right, value string, open *clause) string {
	left, not := strings.CutSuffix(left, "!")
	right = strings.TrimPrefix(right, "=")
	if right == "" {
		right = value
	}
	if !not && (switched[left] != "" || aliases[left] != "" || left == "in_port" || left == "ct_state") {
		return foreignWord(left, right, open)
	}
	term := left + " " + clip(right)
	if not {
		term = left + " != " + clip(right)
	}
	if open != nil && open.field(left) != nil {
		return meant(term)
	}
	for i := range clauses {
		if f := clauses[i].field(left); f != nil && f.accepts(right) {
			return meant(clauses[i].name + " " + term)
		}
	}
	return ""
}

// aliased proposes the address field name for one of its aliases, in the clause that fits the value.
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
