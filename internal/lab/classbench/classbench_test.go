package classbench_test

import (
	"fmt"
	"hash/fnv"
	"slices"
	"testing"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab/classbench"
	"github.com/flowtally/flowtally/internal/oracle"
)

// sets are one set of each kind, by name.
func sets(n int, seed uint64) map[string][]classbench.Rule {
	all := map[string][]classbench.Rule{
		"masked 24": classbench.Masked(n, 24, seed), "masked 200": classbench.Masked(n, min(n, 200), seed),
		"masked 4096": classbench.Masked(n, min(n, 4096), seed), "ranges": classbench.Ranges(n, seed),
		"prefixes": classbench.Prefixes(n, seed),
	}
	for _, f := range classbench.Families() {
		all[f.String()] = classbench.Generate(f, n, seed)
	}
	return all
}

func sum(v any) string {
	h := fnv.New64a()
	fmt.Fprint(h, v)
	return fmt.Sprintf("%016x", h.Sum64())
}

// A seed names one set and one trace, in every process and on every machine.
func TestASeedNamesOneSetAndOneTrace(t *testing.T) {
	want := map[string]string{
		"acl": "90fe9636d0dba65e 5e9728957f497d85 fa0bb55e3ae96938", "fw": "db57a3ed29009645 ee2bbb532202e348 f116bab08603c6fd",
		"ipc":       "5ce7a432a7bf639a ed60bfb3195a41d9 d342887ad09ed685",
		"masked 24": "7a5887c1b15dd753 fbf47faa66305205 c3ba53ee5ae68da1", "masked 200": "51f00c2957d2bb99 2740ae058c3b4809 f36db6ad266033ef",
		"masked 4096": "ebd99b6301c9b0fa 068d366a47881f14 5f0af455c1ae392e", "ranges": "24d11ada1dbd1c84 5accb6fa4cfa2b51 4ef2603bda53098e",
		"prefixes": "59183da98d1cc851 a3a04683a3e10abc 00c88963ff3c9590",
	}
	for name, rules := range sets(300, 7) {
		got := sum(rules) + " " + sum(classbench.Trace(rules, 500, classbench.Locality{Shape: 1, Scale: 1}, 7)) + " " + sum(classbench.Points(rules, 500, 7))
		if want[name] != got {
			t.Errorf("%s: %s", name, got)
		}
	}
	if sum(sets(300, 7)) != sum(sets(300, 7)) || sum(sets(300, 7)) == sum(sets(300, 8)) {
		t.Error("the sets do not follow from the seed alone")
	}
}

func TestSetsHoldAsManyDistinctValidRulesAsAsked(t *testing.T) {
	const n = 5000
	masks := map[string]int{"masked 24": 24, "masked 200": 200, "masked 4096": 4096}
	for name, rules := range sets(n, 1) {
		if len(rules) != n {
			t.Errorf("%s: %d rules of %d", name, len(rules), n)
		}
		if want := masks[name]; want != 0 && classbench.Masks(rules) != want {
			t.Errorf("%s: %d masks", name, classbench.Masks(rules))
		}
		seen := make(map[classbench.Rule]bool)
		for i, r := range rules {
			if seen[r] {
				t.Fatalf("%s: rule %d is there twice", name, i)
			}
			seen[r] = true
			m := r.Match()
			if err := m.Validate(); err != nil {
				t.Fatalf("%s: rule %d: %v", name, i, err)
			}
		}
		points := classbench.Points(rules, n, 1)
		if i := slices.IndexFunc(points, func(p classbench.Packet) bool { return classbench.First(rules, p) < 0 }); i >= 0 {
			t.Errorf("%s: no rule matches packet %d", name, i)
		}
		ranges := slices.IndexFunc(rules, func(r classbench.Rule) bool { return r.SrcPort.First < r.SrcPort.Last && !r.SrcPort.Any() })
		t.Logf("%s: %d masks, a range at %d", name, classbench.Masks(rules), ranges)
	}
}

// The match of a rule and the frame of a packet mean the same to the linear matcher.
func TestFramesMatchTheRulesThatTheirPacketsMatch(t *testing.T) {
	for name, rules := range sets(200, 3) {
		flows := make([]flow.Flow, len(rules))
		for i := range rules {
			flows[i] = flow.Flow{Name: fmt.Sprint("f", i), Match: rules[i].Match()}
		}
		matcher := oracle.New(flows)
		for _, p := range append(classbench.Points(rules, 300, 3), classbench.Trace(rules, 300, classbench.Locality{}, 3)...) {
			got, ok := matcher.Match(oracle.Packet{Frame: p.Frame()})
			if want := classbench.First(rules, p); !ok || got != want {
				t.Fatalf("%s: %+v: rule %d (%t), want %d", name, p, got, ok, want)
			}
		}
	}
}

func TestHighLocalityRepeatsHeaders(t *testing.T) {
	rules := classbench.Generate(classbench.ACL, 1000, 1)
	repeated := func(l classbench.Locality) (n int) {
		trace := classbench.Trace(rules, 10_000, l, 1)
		for i := 1; i < len(trace); i++ {
			if trace[i] == trace[i-1] {
				n++
			}
		}
		return n
	}
	none, low, high := repeated(classbench.Locality{}), repeated(classbench.Locality{Shape: 1, Scale: 0.1}), repeated(classbench.Locality{Shape: 1, Scale: 1})
	if none > 100 || low <= none || high <= 2*low {
		t.Errorf("%d, %d and %d of 10,000 headers are repetitions", none, low, high)
	}
}
