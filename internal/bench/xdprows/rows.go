package xdprows

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/lab/classbench"
)

// runs of a program in one system call.
const runs = 1 << 17

// seed of every generated rule set and trace. The rows print it beside their reference.
const seed = 12

type opener = func(context.Context, bench.Env) (*bench.Sides, error)

// locality is the low locality of the paper: most headers stand alone.
func locality() classbench.Locality { return classbench.Locality{Shape: 1, Scale: 0.1} }

// above is the unit of costs above the empty program.
const above = "ns per packet above empty"

// tracePackets is the length of a trace (bpf/trace.bpf.c).
const tracePackets = 1 << 16

// input is a rule set and a trace of tracePackets.
type input struct {
	rules   []classbench.Rule
	packets []classbench.Packet
}

// ofFamily is a set of a family of ClassBench.
func ofFamily(f classbench.Family, n int) input {
	rules := classbench.Generate(f, n, seed)
	return input{rules, classbench.Trace(rules, tracePackets, locality(), seed)}
}

// ofMasks is a set of n rules over so many masks.
func ofMasks(n, masks int) input {
	rules := classbench.Masked(n, masks, seed)
	return input{rules, classbench.Points(rules, tracePackets, seed)}
}

// ofPrefixes is a set of n destination prefixes.
func ofPrefixes(n int) input {
	rules := classbench.Prefixes(n, seed)
	return input{rules, classbench.Points(rules, tracePackets, seed)}
}

// Rows returns the rows of the packet path. They hold no resource until opened.
func Rows() []bench.Row {
	return append(exactRows(), generatedRows()...)
}

func exactRows() []bench.Row {
	hand := func(name, ours string, frame []byte) bench.Row {
		return bench.Row{
			Name:  "xdp.hand." + name,
			Ours:  ours,
			Ref:   "a program written by hand for this flow, above empty",
			Bound: 1.5,
			Unit:  above,
			Full:  true, // a few ns above empty: one round of the short form says little
			Time:  30 * time.Second,
			Open:  openHand(frame),
		}
	}
	return []bench.Row{
		hand("match", "a packet of one UDP flow", frame(0)),
		hand("miss", "a packet to another port", missing()),
		hand("arp", "an ARP frame", arp()),
		{
			// Without a bound: what an empty program costs, and hides, differs more between processors than what a flow costs.
			// The bounds are those of xdp.hand.
			Name: "xdp.one",
			Ours: "one UDP flow: parse, classify, count",
			Ref:  "empty XDP_PASS",
			Unit: "ns per packet",
			Open: openOne,
		},
		{
			Name:  "xdp.exact.64k.hot",
			Ours:  "65,536 exact 5-tuples, one flow",
			Ref:   "same parser, BPF hash and per-CPU array, above empty",
			Bound: 0.8,
			Unit:  "ns per packet above empty",
			Open:  openHot,
		},
		{
			Name:  "xdp.exact.64k.spread",
			Ours:  "the same, all flows at random",
			Ref:   "same parser, BPF hash and per-CPU array, above empty",
			Bound: 0.5,
			Unit:  "ns per packet above empty",
			Open:  openSpread,
		},
		{
			Name:  "xdp.smp",
			Ours:  "`xdp.one` on two CPUs at once, one counter, none lost",
			Ref:   "xdp.one: one CPU alone",
			Bound: 1.1,
			Unit:  "ns per packet and CPU",
			Open:  openSMP,
		},
	}
}

// generatedRows are about rule sets of package classbench.
func generatedRows() []bench.Row {
	const (
		whole = "ns per packet"
		hash  = "same parser, one lookup in a BPF hash of 65,536 flows and per-CPU array, above empty"
	)
	seeded := fmt.Sprintf(" (seed %d)", seed)
	rows := []bench.Row{
		{
			Name:  "xdp.masked.1k.hot",
			Ours:  "1,000 rules over 24 masks, one packet",
			Ref:   hash + seeded,
			Bound: 1,
			Unit:  above,
			Open:  openMaskedHot(1000, 24),
		},
		{
			Name:  "xdp.masked.1k.spread",
			Ours:  "the same rules, a trace of 65,536 packets",
			Ref:   hash + seeded,
			Bound: 2,
			Unit:  above,
			Open:  openMaskedSpread(1000, 24, "bench_peer", "bench_empty"),
		},
		{
			Name:     "xdp.masked.16k.spread",
			Ours:     "16,000 rules over 200 masks, a trace",
			Ref:      "the same lookup of one flow at random" + seeded,
			Bound:    0.6,
			Unit:     above,
			Openings: 3,
			Open:     openMaskedSpread(16000, 200, "bench_peer_spread", "bench_empty_spread"),
		},
		{
			Name:  "xdp.ranges.1k.spread",
			Ours:  "the rules of `xdp.masked.1k.spread`, each with random ranges of both ports",
			Ref:   "xdp.masked.1k.spread: no ranges" + seeded,
			Bound: 1.3,
			Unit:  whole,
			Open:  openRanges(),
		},
	}
	for _, f := range classbench.Families() {
		for _, n := range []int{1000, 10_000} {
			rows = append(rows, bench.Row{
				Name:     fmt.Sprintf("xdp.classbench.%s.%dk", f, n/1000),
				Ours:     fmt.Sprintf("%d,000 rules of the family %s, a trace", n/1000, f),
				Ref:      "linear matcher in BPF, above empty" + seeded,
				Bound:    0.1,
				Unit:     above,
				Openings: 2,
				Time:     time.Minute,
				Open:     openLinear(func() input { return ofFamily(f, n) }),
			})
		}
	}
	for _, f := range classbench.Families() {
		for _, n := range []int{1000, 10_000} {
			rows = append(rows, aclRow(bench.Row{
				Name:     fmt.Sprintf("xdp.classbench.%s.%dk.rte", f, n/1000),
				Ours:     fmt.Sprintf("the set of `xdp.classbench.%s.%dk`, classification alone", f, n/1000),
				Ref:      "DPDK's rte_acl one packet at a time, classification alone" + seeded,
				Bound:    1,
				Unit:     above,
				Peers:    "rte_acl",
				Openings: 2,
				Time:     time.Minute,
			}, func() input { return ofFamily(f, n) }))
		}
	}
	for _, n := range []int{1000, 16_000} {
		rows = append(rows, bench.Row{
			Name:     fmt.Sprintf("xdp.vs.lpm.%dk", n/1000),
			Ours:     fmt.Sprintf("%d,000 destination prefixes of which the longest counts, a trace", n/1000),
			Ref:      "BPF_MAP_TYPE_LPM_TRIE and per-CPU array, above empty" + seeded,
			Bound:    1,
			Unit:     above,
			Openings: 2,
			Time:     time.Minute,
			Open:     openLPM(n),
		})
	}
	rows = append(rows, memberRows(seeded)...)
	rows = append(rows, worstRows(seeded)...)
	rows = append(rows,
		bench.Row{
			Name:  "xdp.nonip.24",
			Ours:  "an ARP frame with 1,000 rules over 24 masks",
			Ref:   "empty XDP_PASS, the same ARP frame" + seeded,
			Bound: 1.3,
			Unit:  whole,
			Open:  openOther(1000, 24, arp()),
		},
		bench.Row{
			Name:  "xdp.otherip.1",
			Ours:  "an IPv6 frame with one IPv4 rule",
			Ref:   "empty XDP_PASS, the same IPv6 frame" + seeded,
			Bound: 1.3,
			Unit:  whole,
			Open:  openOther(1, 1, ipv6()),
		},
		bench.Row{
			Name:     "xdp.update.10k",
			Ours:     "one rule added to 10,000",
			Ref:      "one rule added to 100" + seeded,
			Bound:    2,
			Unit:     "ns per change, wall time",
			Openings: 2,
			Open:     openUpdate(10_000, 100, 24),
		},
		bench.Row{
			Name:     "xdp.load.16k",
			Ours:     "CPU time of 16,000 rules over 200 masks, from nothing to attached",
			Ref:      "one rule, and a BPF hash for each mask, filled by one batch" + seeded,
			Bound:    16, // building the trees looks at every rule once on each level, and several times where it chooses a cut
			Unit:     "ns of CPU time per load",
			Rounds:   7,
			Openings: 1,
			Time:     30 * time.Second,
			Open:     openLoad(16_000, 200),
		},
	)
	for i := range rows {
		rows[i].Full = !slices.Contains(brief(), rows[i].Name)
	}
	return rows
}

// memberSets are the sets of prefixes that rows are about.
func memberSets() map[string]memberDraw {
	return map[string]memberDraw{"hosts": hostsAnywhere, "list": listed, "ipv6": listed6, "levels": allLevels}
}

// memberRows are about sets of prefixes. Each bound is about twice what was measured on Emerald Rapids beside other work.
func memberRows(seeded string) []bench.Row {
	const lpm = "BPF_MAP_TYPE_LPM_TRIE, above empty"
	row := func(set, kind, ours string, n int, bound float64) bench.Row {
		return bench.Row{
			Name:     fmt.Sprintf("xdp.set.%s.%s", set, kind),
			Ours:     ours,
			Ref:      lpm + seeded,
			Bound:    bound,
			Unit:     above,
			Openings: 1,
			Time:     2 * time.Minute, // the trie takes 8 s to fill
			Open:     openMembers(n, memberSets()[set], kind),
		}
	}
	const million = 1_000_000
	return []bench.Row{
		row("hosts", packetsMiss, "an address of anybody in a set of 1,000,000 addresses, a trace", million, 0.1),
		row("list", packetsMiss, "an address of anybody in a blocklist of 1,000,000 prefixes, a trace", million, 0.1),
		row("list", packetsHit, "the same, an address in the set", million, 0.1),
		row("list", packetsNear, "the same, an address beside one in the set, as a sender would choose it", million, 0.12),
		row("ipv6", packetsMiss, "an address of anybody in a set of 100,000 prefixes of IPv6, a trace", million/10, 0.2),
		row("ipv6", packetsHit, "the same, an address in the set", million/10, 0.4),
		row("levels", packetsNear, "an address that meets 19 levels of 100,000 prefixes of IPv6 that somebody chose", million/10, 1.1),
		{
			Name:     "xdp.set.change",
			Ours:     "one element removed from a set of 1,000,000 prefixes, or added",
			Ref:      "the same of 1,000" + seeded,
			Bound:    7, // a set of a million is beyond the caches
			Unit:     "ns per change",
			Openings: 1,
			Time:     time.Minute,
			Open:     openMemberChange(million, 1000),
		},
		{
			Name:     "xdp.set.load",
			Ours:     "a blocklist of 1,000,000 prefixes, from nothing to the kernel's memory",
			Ref:      "BPF_MAP_TYPE_LPM_TRIE, filled by one batch" + seeded,
			Bound:    0.9,
			Unit:     "ns of CPU time per load",
			Rounds:   7,
			Openings: 1,
			Time:     2 * time.Minute,
			Open:     openMemberLoad(million),
		},
	}
}

// brief are the generated rows of the short form.
func brief() []string {
	return []string{"xdp.masked.1k.spread", "xdp.ranges.1k.spread", "xdp.nonip.24", "xdp.otherip.1"}
}

// worstInput is a set of which the worst packet is searched: of generated rules, or of rules that somebody chose to make the
// classifier slow.
type worstInput struct {
	rules     []classbench.Rule
	scattered []classbench.Scattered
}

// worstRows are about the packet that costs most. The bounds of generated sets are ratios to an empty program of about 20 ns.
func worstRows(seeded string) []bench.Row {
	row := func(name, set string, bound float64, generate func() worstInput) bench.Row {
		return bench.Row{
			Name:     "xdp.worst." + name,
			Ours:     "the worst packet of " + set,
			Ref:      "empty XDP_PASS" + seeded,
			Bound:    bound,
			Unit:     "ns per packet, the worst that a search finds",
			Openings: 1,
			Time:     time.Minute,
			Open:     openWorst(generate),
		}
	}
	chosen := func(name, set string, generate func() worstInput) bench.Row {
		r := row(name, set+" that somebody chose to be slow, without `xdp.worst_cost`", 3, generate)
		r.Ref = "linear matcher in BPF, a packet that no rule matches, above empty" + seeded
		r.Open = openWorstChosen(generate)
		return r
	}
	rows := []bench.Row{
		row("masked.1k", "1,000 rules over 24 masks", 6, func() worstInput { return worstInput{rules: classbench.Masked(1000, 24, seed)} }),
		row("ranges.1k", "1,000 rules with ranges of ports", 6, func() worstInput { return worstInput{rules: classbench.Ranges(1000, seed)} }),
	}
	for _, f := range classbench.Families() {
		for _, n := range []int{1000, 10_000} {
			rows = append(rows, row(fmt.Sprintf("%s.%dk", f, n/1000), fmt.Sprintf("%d,000 rules of the family %s", n/1000, f), 60, func() worstInput { return worstInput{rules: classbench.Generate(f, n, seed)} }))
		}
	}
	return append(rows,
		chosen("fewbits.3k", "3,000 rules over few bits", func() worstInput { return worstInput{scattered: classbench.FewBits(3000, seed)} }),
		chosen("nested.3k", "3,000 nested rules", func() worstInput { return worstInput{scattered: classbench.Nested(3000)} }),
		bench.Row{
			Name:     "xdp.worst.ipv6.extensions",
			Ours:     "an IPv6 packet with eight extension headers",
			Ref:      "the same without extension headers",
			Bound:    7,
			Unit:     "ns per packet",
			Openings: 1,
			Open:     openExtensions,
		},
	)
}
