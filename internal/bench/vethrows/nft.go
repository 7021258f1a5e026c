package vethrows

import (
	"fmt"
	"strings"
)

// The ports of the flows (bpf/send.bpf.c).
const (
	firstPort = 1000
	ports     = 1000
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
	list := make([]string, n)
	for p := range n {
		list[p] = fmt.Sprintf("%d : %s", firstPort+p, value(firstPort+p))
	}
	return "{ " + strings.Join(list, ", ") + " }"
}
