package plugintest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// patience ends a test that hangs. It is long, because a busy machine must not fail the suite.
const patience = time.Minute

// Conformance tests the contract of dataplane.Service. open must return a new instance without flows, under a new name. It
// must be able to count any flow without an interface of its own. The suite closes it.
func Conformance(t *testing.T, open func() dataplane.Service) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(*testing.T, *suite)
	}{
		{"info", testInfo},
		{"add and remove", testAddRemove},
		{"placements by name", testPlacementsByName},
		{"the order in which flows win", testOrder},
		{"matches keep their meaning", testMatches},
		{"all or none", testAllOrNone},
		{"set", testSetFlows},
		{"interfaces", testInterfaces},
		{"invalid flows", testInvalid},
		{"the backend that a flow names", testBackend},
		{"identity of counters", testIdentity},
		{"conditions", testConditions},
		{"queue pairs that there are not", testNoQueuePairs},
		{"events", testEvents},
		{"events of a receiver that lags", testLag},
		{"cancelled calls", testCancelled},
		{"concurrent calls", testConcurrent},
		{"close", testClose},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			s := &suite{t: t, ctx: ctx, Service: open()}
			defer func() {
				if err := s.Close(); err != nil {
					t.Errorf("closing: %v", err)
				}
			}()
			test.run(t, s)
		})
	}
}

// suite is the instance under test, with helpers.
type suite struct {
	dataplane.Service
	t   *testing.T
	ctx context.Context
}

func (s *suite) add(flows ...flow.Flow) []dataplane.Placement {
	s.t.Helper()
	placed, err := s.AddFlows(s.ctx, flows...)
	if err != nil {
		s.t.Fatalf("adding %d flows: %v", len(flows), err)
	}
	return placed
}

func (s *suite) names() []string {
	s.t.Helper()
	placed, err := s.Placements(s.ctx)
	if err != nil {
		s.t.Fatalf("listing placements: %v", err)
	}
	var out []string
	for _, p := range placed {
		out = append(out, p.Flow.Name)
	}
	return out
}

func (s *suite) wantNames(want ...string) {
	s.t.Helper()
	if got := s.names(); !slices.Equal(got, want) {
		s.t.Fatalf("flows are %q, want %q", got, want)
	}
}

func (s *suite) wantErr(what string, err, want error) {
	s.t.Helper()
	if !errors.Is(err, want) {
		s.t.Errorf("%s: error is %v, want one that satisfies %q", what, err, want)
	}
}

// mustMatch parses a match and panics on error.
func mustMatch(t *testing.T, text string) flow.Match {
	t.Helper()
	m, err := flow.ParseMatch(text)
	if err != nil {
		t.Fatalf("parsing %q: %v", text, err)
	}
	return m
}

func numbered(t *testing.T, prefix string, n int) []flow.Flow {
	t.Helper()
	out := make([]flow.Flow, n)
	for i := range out {
		out[i] = flow.Flow{
			Name:  fmt.Sprintf("%s-%04d", prefix, i),
			Match: mustMatch(t, fmt.Sprintf("ipv4 dst 10.1.%d.%d udp dport %d", i>>8&255, i&255, 1000+i%1000)),
		}
	}
	return out
}

func testInfo(t *testing.T, s *suite) {
	info, err := s.Info(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if info.Instance == "" || info.Mirror == "" || info.PID <= 0 || info.Started.IsZero() || time.Until(info.Started) > time.Minute {
		t.Errorf("info is incomplete: %+v", info)
	}
	again, err := s.Info(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !again.Started.Equal(info.Started) {
		t.Errorf("started changed from %v to %v", info.Started, again.Started)
	}
	info.Started, again.Started = time.Time{}, time.Time{}
	if info != again {
		t.Errorf("info changed from %+v to %+v", info, again)
	}
}

func testAddRemove(t *testing.T, s *suite) {
	s.wantNames()
	full := flow.Flow{
		Name: "web", Match: mustMatch(t, "ipv4 dst 192.0.2.10 tcp dport 443"), Priority: 7,
		Direction: flow.Egress, Labels: map[string]string{"team": "edge", "site": "Köln"}, Latency: true,
	}
	placed := s.add(full, flow.Flow{Name: "all"})
	if len(placed) != 2 || placed[0].Flow.Name != "web" || placed[1].Flow.Name != "all" {
		t.Fatalf("placements are not in the order of the flows: %+v", placed)
	}
	got := placed[0].Flow
	if got.Match.String() != full.Match.String() || got.Priority != 7 || got.Direction != flow.Egress || got.Action != flow.Count ||
		!got.Latency || len(got.Labels) != 2 || got.Labels["site"] != "Köln" {
		t.Errorf("flow came back as %+v, want %+v", got, full)
	}
	if placed[0].Source.Backend == "" {
		t.Error("the source names no backend")
	}
	s.add(flow.Flow{Name: "mid"})
	s.wantNames("all", "mid", "web")
	if err := s.RemoveFlows(s.ctx, "web", "all"); err != nil {
		t.Fatal(err)
	}
	s.wantNames("mid")
	s.wantErr("removing again", s.RemoveFlows(s.ctx, "web"), dataplane.ErrNotFound)
	if placed := s.add(); len(placed) != 0 {
		t.Errorf("adding nothing placed %d flows", len(placed))
	}
	if err := s.RemoveFlows(s.ctx); err != nil {
		t.Errorf("removing nothing: %v", err)
	}
	s.add(full)
	s.wantNames("mid", "web")
}

func testOrder(t *testing.T, s *suite) {
	wantOrder := func(want ...string) {
		t.Helper()
		placed, err := s.Placements(s.ctx)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(placed, func(a, b dataplane.Placement) int { return cmp.Compare(a.Order, b.Order) })
		var got []string
		for _, p := range placed {
			got = append(got, p.Flow.Name)
			if p.Order == 0 {
				t.Errorf("flow %s has no order", p.Flow.Name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("flows win in the order %q, want %q", got, want)
		}
	}
	s.add(flow.Flow{Name: "zz", Match: mustMatch(t, "tcp dport 443")}, flow.Flow{Name: "mid", Match: mustMatch(t, "tcp")})
	s.add(flow.Flow{Name: "all"})
	wantOrder("zz", "mid", "all")
	turned := []flow.Flow{{Name: "mid", Match: mustMatch(t, "tcp")}, {Name: "zz", Match: mustMatch(t, "tcp dport 443")}, {Name: "all"}}
	if _, err := s.SetFlows(s.ctx, turned, dataplane.SetOptions{}); err != nil {
		t.Fatal(err)
	}
	wantOrder("mid", "zz", "all")
}

func testPlacementsByName(t *testing.T, s *suite) {
	added := s.add(numbered(t, "p", 40)...)
	for _, asked := range [][]string{
		{"p-0007"}, {"p-0030", "p-0002", "p-0030"}, {"absent", "p-0039"}, {"absent"}, {"a\xff"}, {""},
	} {
		placed, err := s.Placements(s.ctx, slices.Clone(asked)...)
		if err != nil {
			t.Fatalf("placements of %q: %v", asked, err)
		}
		var want []string
		for _, p := range added {
			if slices.Contains(asked, p.Flow.Name) {
				want = append(want, p.Flow.Name)
			}
		}
		var got []string
		for _, p := range placed {
			got = append(got, p.Flow.Name)
			if i := slices.IndexFunc(added, func(a dataplane.Placement) bool { return a.Flow.Name == p.Flow.Name }); added[i].Counter != p.Counter || !added[i].Source.Equal(p.Source) {
				t.Errorf("%s is placed as %+v, and was added as %+v", p.Flow.Name, p, added[i])
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("placements of %q are of %q, want %q", asked, got, want)
		}
	}
}

func testMatches(t *testing.T, s *suite) {
	texts := []string{
		"any", "eth dst 02:00:00:00:00:01 type 0x88cc", "vlan id 100 vlan id 7 ipv6 udp", "udp dport 1000-2000", "icmp type 8",
		"ipv4 src 10.0.0.0/8 dst 192.0.2.10 tcp dport 443", "ipv4 proto 47 tos 0x10/0xfc ttl 64 frag later",
		"ipv4 dst 192.0.2.1 vxlan vni 5 inner ipv4 dst 10.0.0.1 tcp dport 80", "gre key 7 inner ipv6", "ipip inner ipv6", "gtpu teid 0x00001000 inner ipv4", "ipv6 udp incomplete",
		"untagged ipv6 frag first tcp flags syn/syn,ack", "ipv4 esp spi 0x00001000", "vlan id 7 mpls label 16 tc 5 bos 1 ttl 64",
	}
	want := map[string]string{}
	var flows []flow.Flow
	for i, text := range texts {
		f := flow.Flow{Name: fmt.Sprintf("m%d", i), Match: mustMatch(t, text), Priority: uint16(i)}
		want[f.Name] = f.Match.String()
		flows = append(flows, f)
	}
	s.add(flows...)
	placed, err := s.Placements(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(placed) != len(texts) {
		t.Errorf("%d placements, want %d", len(placed), len(texts))
	}
	for _, p := range placed {
		if got := p.Flow.Match.String(); got != want[p.Flow.Name] {
			t.Errorf("%s: match is %q, want %q", p.Flow.Name, got, want[p.Flow.Name])
		}
	}
}

func testAllOrNone(t *testing.T, s *suite) {
	s.add(flow.Flow{Name: "old"})
	_, err := s.AddFlows(s.ctx, flow.Flow{Name: "new"}, flow.Flow{Name: "old"})
	s.wantErr("adding a flow that exists", err, dataplane.ErrExists)
	if err != nil && !strings.Contains(err.Error(), "old") {
		t.Errorf("the error does not name the flow: %v", err)
	}
	s.wantNames("old")
	if _, err := s.AddFlows(s.ctx, flow.Flow{Name: "twin"}, flow.Flow{Name: "twin"}); err == nil {
		t.Error("a name twice in one call was taken")
	}
	s.wantNames("old")
	s.wantErr("removing a flow that does not exist", s.RemoveFlows(s.ctx, "old", "absent"), dataplane.ErrNotFound)
	s.wantNames("old")
}

func testInvalid(t *testing.T, s *suite) {
	for _, f := range []flow.Flow{
		{},
		{Name: "with space"},
		{Name: strings.Repeat("x", 64)},
		{Name: strings.Repeat("x", 1<<20)},
		{Name: "a\xff"},
		{Name: "a\x00b"},
		{Name: "bits", Match: flow.Match{IPv4: &flow.IPv4{Proto: flow.Masked[uint8]{Value: 1}}}},
		{Name: "direction", Direction: 9},
		{Name: "action", Action: 9},
		{Name: "backend", Backend: "dpdk"},
	} {
		_, err := s.AddFlows(s.ctx, f)
		s.wantErr(fmt.Sprintf("adding %.20q", f.Name), err, dataplane.ErrInvalid)
	}
	s.wantErr("removing a name that cannot be", s.RemoveFlows(s.ctx, "a\xff"), dataplane.ErrNotFound)
	s.wantNames()
}

func testIdentity(t *testing.T, s *suite) {
	flows := numbered(t, "id", 300)
	seen := map[dataplane.Handle]string{}
	for _, p := range s.add(flows...) {
		if other, have := seen[p.Counter]; have {
			t.Fatalf("%s and %s share the counter %+v", other, p.Flow.Name, p.Counter)
		}
		seen[p.Counter] = p.Flow.Name
	}
	placed, err := s.Placements(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range placed {
		if seen[p.Counter] != p.Flow.Name {
			t.Errorf("%s has the counter %+v, which was given to %q", p.Flow.Name, p.Counter, seen[p.Counter])
		}
	}
	if err := s.RemoveFlows(s.ctx, flows[0].Name); err != nil {
		t.Fatal(err)
	}
	other := s.add(flow.Flow{Name: "other"})[0]
	if was, have := seen[other.Counter]; have {
		t.Errorf("a new flow got the counter %+v, which %s had", other.Counter, was)
	}
}

func testConditions(t *testing.T, s *suite) {
	conditions, err := s.Conditions(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range conditions {
		if c.Code == "" || c.Text == "" || c.Since.IsZero() {
			t.Errorf("condition is incomplete: %+v", c)
		}
		if i > 0 && c.Severity > conditions[i-1].Severity {
			t.Errorf("conditions are not worst first: %+v", conditions)
		}
	}
}

func testConcurrent(t *testing.T, s *suite) {
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 10 {
				name := fmt.Sprintf("c-%d-%d", g, i)
				if _, err := s.AddFlows(s.ctx, flow.Flow{Name: name}); err != nil {
					t.Errorf("adding %s: %v", name, err)
				}
				if _, err := s.Placements(s.ctx); err != nil {
					t.Errorf("listing: %v", err)
				}
				if _, err := s.Conditions(s.ctx); err != nil {
					t.Errorf("conditions: %v", err)
				}
				if i%2 == 0 {
					if err := s.RemoveFlows(s.ctx, name); err != nil {
						t.Errorf("removing %s: %v", name, err)
					}
				}
			}
		})
	}
	wg.Wait()
	if got := len(s.names()); got != 4*5 {
		t.Errorf("%d flows are left, want %d", got, 4*5)
	}
}
