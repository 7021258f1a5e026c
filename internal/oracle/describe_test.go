package oracle_test

import (
	"encoding/hex"
	"math/rand/v2"
	"testing"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/oracle"
	"github.com/flowtally/flowtally/internal/oracle/gen"
)

// For random packets: a match selects a packet if and only if all of its terms do. The description of a packet is a valid match
// that selects the packet, and it has the value of each term that selects the packet.
func TestAMatchSelectsAPacketIfAndOnlyIfAllItsTermsDo(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Uint64(t), 0))
	matched, missed := 0, 0
	for range 500 {
		flows := gen.Flows(rng, 1+rng.IntN(10))
		for range 20 {
			p := oracle.Packet{Frame: gen.Packet(rng, flows)}
			if rng.IntN(4) == 0 && len(p.Frame) > 14 {
				p.Frame, p.Layer3 = p.Frame[14:], true
			}
			described := oracle.Describe(p)
			if !oracle.Matches(described, p) {
				t.Fatalf("the description %s does not match its packet\n%s", described, hex.Dump(p.Frame))
			}
			if again, err := flow.ParseMatch(described.String()); err != nil || again.String() != described.String() {
				t.Fatalf("the description %s is read as %s, %v", described, again, err)
			}
			for _, f := range flows {
				all := true
				for _, term := range f.Match.Terms() {
					does := oracle.Matches(term, p)
					all = all && does
					if has := term.ValuesIn(described); does && !oracle.Matches(has, p) {
						t.Fatalf("the term %s selects the packet, and its values %s do not\n%s", term, has, hex.Dump(p.Frame))
					}
				}
				whole := oracle.Matches(f.Match, p)
				if whole != all {
					t.Fatalf("%s matches: %t, all of its terms %v: %t\n%s", f.Match, whole, f.Match.Terms(), all, hex.Dump(p.Frame))
				}
				if whole {
					matched++
				} else {
					missed++
				}
			}
		}
	}
	t.Logf("%d matches and %d others", matched, missed)
	if matched < 1000 || missed < 1000 {
		t.Error("the test looks at little")
	}
}

func TestTermsComeInTheOrderOfTheText(t *testing.T) {
	m, err := flow.ParseMatch("vlan id 100 vlan ipv4 src 10.0.0.0/8 udp vxlan vni 7 inner tcp dport 1-9")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"vlan", "vlan id 100", "vlan vlan", "ipv4", "ipv4 src 10.0.0.0/8", "udp", "vxlan", "vxlan vni 7",
		"vxlan inner any", "vxlan inner tcp", "vxlan inner tcp dport 1-9"}
	terms := m.Terms()
	if len(terms) != len(want) {
		t.Fatalf("terms %v, want %q", terms, want)
	}
	for i, term := range terms {
		if term.String() != want[i] {
			t.Errorf("term %d is %s, want %s", i, term, want[i])
		}
	}
}
