package vethrows

import (
	"fmt"
	"strconv"
	"strings"
)

// The ports of the flows (bpf/send.bpf.c), and the address that sends to them.
const (
	firstPort = 1000
	ports     = 1000
	source    = "10.0.0.1"
)

// ruleset makes the text of a table for nft of the ingress hook of an interface, for n ports. verdict is "drop" or "accept".
type ruleset func(ifname, verdict string, n int) string

// one has one rule, for every packet.
func one(ifname, verdict string, _ int) string { return table(ifname, "", verdict) }

// counterMap has the counters in a map from the port.
func counterMap(ifname, verdict string, n int) string {
	names := elements(n, func(p int) string { return fmt.Sprintf(`"c%d"`, p) })
	return table(ifname, counters(n), "counter name udp dport map "+names+"\n"+verdict)
}

// concatMap has the counters in a named map from the source address and the port.
func concatMap(ifname, verdict string, n int) string {
	keys := list(n, func(p int) string { return fmt.Sprintf(`%s . %d : "c%d"`, source, p, p) })
	m := "map flows { type ipv4_addr . inet_service : counter; elements = " + keys + "; }\n"
	return table(ifname, counters(n)+m, "counter name ip saddr . udp dport map @flows\n"+verdict)
}

// counterSet has a counter in each element of a set of ports.
func counterSet(ifname, verdict string, n int) string {
	set := "set flows { type inet_service; counter; elements = " + list(n, strconv.Itoa) + "; }\n"
	return table(ifname, set, "udp dport @flows "+verdict)
}

// verdictMap has a chain for each port, with its counter.
func verdictMap(ifname, verdict string, n int) string {
	var chains strings.Builder
	for p := range n {
		fmt.Fprintf(&chains, "chain p%d { counter name \"c%d\" %s; }\n", firstPort+p, firstPort+p, verdict)
	}
	jumps := elements(n, func(p int) string { return fmt.Sprintf("goto p%d", p) })
	return table(ifname, counters(n)+chains.String(), "udp dport vmap "+jumps)
}

// linear has a rule for each port.
func linear(ifname, verdict string, n int) string {
	var rules strings.Builder
	for p := range n {
		fmt.Fprintf(&rules, "udp dport %d counter name \"c%d\" %s\n", firstPort+p, firstPort+p, verdict)
	}
	return table(ifname, counters(n), rules.String())
}

// table is the text of a table with named objects, and rules on the ingress hook.
func table(ifname, objects, rules string) string {
	return fmt.Sprintf(`table netdev bench_%s {
%schain in {
type filter hook ingress device %q priority 0; policy accept;
%s
}
}
`, ifname, objects, ifname, rules)
}

func counters(n int) string {
	var b strings.Builder
	for p := range n {
		fmt.Fprintf(&b, "counter c%d { }\n", firstPort+p)
	}
	return b.String()
}

func elements(n int, value func(port int) string) string {
	return list(n, func(p int) string { return fmt.Sprintf("%d : %s", p, value(p)) })
}

// list has an element for each port.
func list(n int, element func(port int) string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = element(firstPort + i)
	}
	return "{ " + strings.Join(all, ", ") + " }"
}
