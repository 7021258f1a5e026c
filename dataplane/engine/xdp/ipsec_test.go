package xdp

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/xdp"
)

// fakePolicies is a list of policies that counts its listings and open watches.
type fakePolicies struct {
	loaded   bool
	refuses  error // the error of watch
	policy   string
	changed  bool
	listings int
	watches  int // open now
	took     time.Duration
}

func (p *fakePolicies) available() bool { return p.loaded }

func (p *fakePolicies) watch() (policyChanges, error) {
	if p.refuses != nil {
		return nil, p.refuses
	}
	p.watches++
	p.changed = false
	return fakeChanges{p}, nil
}

func (p *fakePolicies) tunnel() (string, error) {
	p.listings++
	time.Sleep(p.took)
	return p.policy, nil
}

type fakeChanges struct{ *fakePolicies }

func (c fakeChanges) seen() bool { return c.changed }

func (c fakeChanges) Close() error {
	c.watches--
	return nil
}

// looked looks for a policy without waiting for the pause after a listing, and checks what it finds.
func looked(t *testing.T, tunnels *tunnels, want string) {
	t.Helper()
	tunnels.next = time.Time{}
	if got, err := tunnels.look(); got != want || err != nil {
		t.Errorf("found %q, %v, want %q", got, err, want)
	}
}

// A listing may be long, so it must not happen without a change. And without the kernel's module nothing may be asked at all,
// because asking loads it.
func TestPoliciesAreListedOnlyAfterAChange(t *testing.T) {
	p := &fakePolicies{}
	tunnels := &tunnels{policies: p}
	for range 100 {
		looked(t, tunnels, "")
	}
	if p.listings+p.watches != 0 {
		t.Fatalf("%d listings and %d watches without the kernel's module: they load it", p.listings, p.watches)
	}

	p.loaded = true
	for range 100 {
		looked(t, tunnels, "")
	}
	p.policy, p.changed = "dir in", true
	for range 100 {
		looked(t, tunnels, "dir in")
	}
	p.policy, p.changed = "", true
	for range 100 {
		looked(t, tunnels, "")
	}
	if p.listings != 3 || p.watches != 1 {
		t.Errorf("%d listings after 2 changes, %d open watches; want 3 and 1", p.listings, p.watches)
	}
	tunnels.close()
	if p.watches != 0 {
		t.Errorf("%d open watches after the end", p.watches)
	}
	p.policy = "dir fwd" // changed without a watch
	looked(t, tunnels, "dir fwd")

	p.refuses = errors.New("refused")
	p.changed = true
	if got, err := tunnels.look(); got != "dir fwd" || !errors.Is(err, p.refuses) {
		t.Errorf("found %q, %v: want the last one, and why no other is known", got, err)
	}
}

// A daemon may change policies all the time. Then listings must not take more than a percent of a CPU.
func TestPoliciesInConstantChangeAreListedSeldom(t *testing.T) {
	p := &fakePolicies{loaded: true, took: time.Millisecond}
	tunnels := &tunnels{policies: p}
	began := time.Now()
	for time.Since(began) < 30*time.Millisecond {
		p.changed = true
		if _, err := tunnels.look(); err != nil {
			t.Fatal(err)
		}
	}
	if most := 1 + int(time.Since(began)/(restAfterListing*p.took)); p.listings > most {
		t.Errorf("%d listings of %v in %v, want at most %d", p.listings, p.took, time.Since(began), most)
	}
	p.policy, p.changed = "dir in", true // the last look may have been a listing
	looked(t, tunnels, "dir in")
}

// The fix proposes native XDP only if every interface behind the driver can have it. Otherwise it must name a way without it.
func TestTunnelConditionNamesAWayThatWorks(t *testing.T) {
	eth0 := xdp.Attachment{Interface: "eth0", Index: 2, Hook: xdp.HookIngress, Mode: "tcx"}
	eth1 := xdp.Attachment{Interface: "eth1", Index: 3, Hook: xdp.HookIngress, Mode: "native"}
	egress := xdp.Attachment{Interface: "eth0", Index: 2, Hook: xdp.HookEgress, Mode: "tcx"}
	esp := "match esp (behind NAT: udp dport 4500) in a flow before the others"
	for _, c := range []struct {
		name     string
		policy   string
		held     []xdp.Attachment
		rejected map[string]error
		holder   map[string]xdp.Holder
		fix      string // "": no condition
	}{
		{name: "no policy", held: []xdp.Attachment{eth0}},
		{name: "XDP and egress", policy: "dir in", held: []xdp.Attachment{eth1, egress}},
		{name: "TCX ingress", policy: "dir in", held: []xdp.Attachment{eth0, eth1, egress}, fix: "interfaces: [{name: eth0, mode: native}, eth1] in the configuration"},
		{name: "generic XDP", policy: "dir in", held: []xdp.Attachment{{Interface: "eth0", Index: 2, Hook: xdp.HookIngress, Mode: "generic"}}, fix: "interfaces: [{name: eth0, mode: native}, eth1] "},
		{name: "the driver has refused XDP", policy: "dir in", held: []xdp.Attachment{eth0}, rejected: map[string]error{"eth0": errors.New("refused")}, fix: esp},
		{name: "another program holds the hook", policy: "dir in", held: []xdp.Attachment{eth0}, holder: map[string]xdp.Holder{"eth0": {Text: "x"}}, fix: esp},
	} {
		t.Run(c.name, func(t *testing.T) {
			list := []dataplane.Interface{{Name: "eth0"}, {Name: "eth1"}}
			h := &hooks{patterns: list, interfaces: list, held: c.held, rejected: c.rejected, upstream: newUpstream(0)}
			h.upstream.tunnel = c.policy
			h.upstream.beside.holder = c.holder
			got := h.tunnelConditions()
			if c.fix == "" {
				if len(got) > 0 {
					t.Errorf("conditions %+v", got)
				}
				return
			}
			if len(got) != 1 || !strings.Contains(got[0].Text, "(dir in)") || !strings.Contains(got[0].Text, "TCX or generic XDP counts received packets on eth0:") ||
				!strings.HasPrefix(got[0].Fix, c.fix) || !strings.Contains(got[0].Fix, esp) {
				t.Errorf("conditions %+v, want the fix %q", got, c.fix)
			}
		})
	}
}
