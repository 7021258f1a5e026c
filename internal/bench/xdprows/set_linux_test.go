package xdprows

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/flowtally/flowtally/internal/lab/classbench"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/xdp"
)

// Over a trace, the classifier and the linear matcher count each rule's packets as often as the rule is the first that
// matches.
func TestMatchersCountForTheFirstRuleThatMatches(t *testing.T) {
	need.BPF(t)
	sets := map[string][]classbench.Rule{"masked": classbench.Masked(300, 24, seed), "ranges": classbench.Ranges(300, seed)}
	for _, f := range classbench.Families() {
		sets[f.String()] = classbench.Generate(f, 300, seed)
	}
	for name, rules := range sets {
		t.Run(name, func(t *testing.T) {
			packets := classbench.Trace(rules, 5000, locality(), seed)
			s, err := newSet(rules, packets)
			if err != nil {
				t.Fatal(err)
			}
			defer s.close()
			if err := s.fillLinear(inLinear(rules)); err != nil {
				t.Fatal(err)
			}
			want := make([]uint64, len(rules))
			for i := range tracePackets {
				if first := classbench.First(rules, packets[i%len(packets)]); first >= 0 {
					want[first]++
				}
			}
			for _, which := range []int{traceOurs, traceLinear} {
				if _, err := s.spread(which)(t.Context(), tracePackets); err != nil {
					t.Fatal(err)
				}
			}
			got := make([]xdp.Pair, len(rules))
			if err := s.rules.Read(s.counters, got); err != nil {
				t.Fatal(err)
			}
			for i, n := range want {
				if linear := linearCount(t, s.trace, uint32(i)); got[i].Packets != n || linear != n {
					t.Fatalf("rule %d: the classifier counted %d packets and the linear matcher %d of %d", i, got[i].Packets, linear, n)
				}
			}
		})
	}
}

func linearCount(t *testing.T, c *ebpf.Collection, rule uint32) (sum uint64) {
	t.Helper()
	var v []struct{ Packets, Bytes uint64 }
	if err := c.Maps["linear_values"].Lookup(rule, &v); err != nil {
		t.Fatal(err)
	}
	for _, cpu := range v {
		sum += cpu.Packets
	}
	return sum
}

// Over a trace, the LPM trie counts each prefix's packets as often as the prefix is the longest that matches. The rows
// compare it with the classifier when they are opened.
func TestLPMTrieCountsForTheLongestPrefixThatMatches(t *testing.T) {
	need.BPF(t)
	in := ofPrefixes(300)
	s, err := newSet(in.rules, in.packets)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	trie, err := newLPM(in.rules)
	if err != nil {
		t.Fatal(err)
	}
	defer trie.close()
	if err := s.putBehind(traceLPM, trie.coll.Programs["lpm"]); err != nil {
		t.Fatal(err)
	}
	if err := s.agreeWith(t.Context(), trie); err != nil {
		t.Fatal(err)
	}

	got, err := trie.counts(len(in.rules))
	if err != nil {
		t.Fatal(err)
	}
	want := make([]xdp.Pair, len(in.rules))
	for _, p := range in.packets {
		longest := &want[classbench.First(in.rules, p)]
		longest.Packets++
		longest.Bytes += classbench.FrameLen
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("prefix %+v: counted %+v, want %+v", in.rules[i].Dst, got[i], want[i])
		}
	}
}
