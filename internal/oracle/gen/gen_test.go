package gen_test

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/oracle"
	"github.com/flowtally/flowtally/internal/oracle/gen"
)

// A differential test is worth nothing if the drawn packets never hit, always hit, or never hit two flows. So check the mixture.
func TestDrawnPacketsHitAndMiss(t *testing.T) {
	const sets, packets = 400, 100
	var hit, contested, missed int
	kinds := map[string]int{}
	for seed := range uint64(sets) {
		rng := rand.New(rand.NewPCG(seed, 1))
		flows := gen.Flows(rng, 1+rng.IntN(40))
		for i := range flows {
			if err := flows[i].Validate(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			flows[i].Direction = flow.Ingress
			m := flows[i].Match
			for kind, has := range map[string]bool{
				"eth": m.Eth != nil, "vlan": len(m.VLAN) == 1, "qinq": len(m.VLAN) == 2, "ipv4": m.IPv4 != nil, "ipv6": m.IPv6 != nil,
				"tcp": m.TCP != nil, "udp": m.UDP != nil, "icmp": m.ICMP != nil, "vxlan": m.VXLAN != nil, "gre": m.GRE != nil,
				"incomplete":  m.Incomplete,
				"inner":       m.Inner() != nil,
				"ipip":        m.IPIP != nil,
				"geneve":      m.Geneve != nil,
				"gtpu":        m.GTPU != nil,
				"mplsudp":     m.MPLSUDP != nil,
				"frag":        m.IPv4 != nil && m.IPv4.Fragment != flow.FragmentAny,
				"frag6":       m.IPv6 != nil && m.IPv6.Fragment != flow.FragmentAny,
				"untagged":    m.Untagged,
				"flags":       m.TCP != nil && m.TCP.Flags.Mask != 0,
				"esp":         m.ESP != nil,
				"spi":         m.ESP != nil && m.ESP.SPI.Mask != 0,
				"ah spi":      m.AH != nil && m.AH.SPI.Mask != 0,
				"sctp":        m.SCTP != nil,
				"vtag":        m.SCTP != nil && m.SCTP.Tag.Mask != 0,
				"arp":         m.ARP != nil,
				"arp fields":  m.ARP != nil && *m.ARP != flow.ARP{},
				"arp inside":  m.Inner() != nil && m.Inner().ARP != nil,
				"mpls":        m.MPLS != nil,
				"mpls inside": m.Inner() != nil && m.Inner().MPLS != nil,
				"set":         slices.ContainsFunc(m.Choices, func(c flow.Choice) bool { return len(c.Values) > 1 && !c.Not }),
				"exclusion":   slices.ContainsFunc(m.Choices, func(c flow.Choice) bool { return c.Not }),
				"span":        slices.ContainsFunc(m.Choices, func(c flow.Choice) bool { return c.Values[0].Last != flow.Number{} }),
				"set inside":  m.Inner() != nil && len(m.Inner().Choices) > 0,
				"several":     len(m.Choices) > 1,
				"range":       m.UDP != nil && m.UDP.Dst.Last != 0 || m.TCP != nil && m.TCP.Dst.Last != 0,
			} {
				if has {
					kinds[kind]++
				}
			}
		}
		m := oracle.New(flows)
		for range packets {
			frame := gen.Packet(rng, flows)
			if len(frame) < 14 {
				t.Fatalf("seed %d: frame of %d bytes", seed, len(frame))
			}
			first, ok := m.Match(oracle.Packet{Frame: frame})
			if !ok {
				missed++
				continue
			}
			hit++
			kinds["hit "+shapeOf(flows[first].Match)]++
			for _, c := range flows[first].Match.Choices {
				kinds[map[bool]string{false: "hit set", true: "hit exclusion"}[c.Not]]++
			}
			rest := append(append([]flow.Flow{}, flows[:first]...), flows[first+1:]...)
			if _, ok := oracle.New(rest).Match(oracle.Packet{Frame: frame}); ok {
				contested++
			}
		}
	}
	t.Logf("%d hit, of them %d contested; %d missed; %v", hit, contested, missed, kinds)
	for kind, n := range map[string]int{"hit": hit, "contested": contested, "missed": missed} {
		if n < sets*packets/10 {
			t.Errorf("%s: %d of %d packets, want a tenth at least", kind, n, sets*packets)
		}
	}
	for _, kind := range []string{
		"eth", "vlan", "qinq", "ipv4", "ipv6", "tcp", "udp", "icmp", "vxlan", "gre", "inner", "frag", "frag6", "untagged", "range", "flags", "esp", "spi", "mpls", "mpls inside",
		"set", "exclusion", "span", "set inside", "several", "hit set", "hit exclusion",
		"ah spi", "sctp", "vtag", "arp", "arp fields", "arp inside",
		"hit esp", "hit mpls", "hit mpls inside", "hit ah", "hit sctp", "hit arp", "hit arp inside",
		"ipip", "geneve", "gtpu", "mplsudp",
		"hit vxlan inner", "hit gre inner", "hit ipip inner", "hit geneve inner", "hit gtpu inner", "hit mplsudp inner", "hit tcp", "hit udp", "hit icmp", "incomplete", "hit incomplete",
	} {
		if kinds[kind] < 20 {
			t.Errorf("%s: drawn %d times", kind, kinds[kind])
		}
	}
}

func shapeOf(m flow.Match) string {
	switch {
	case m.Incomplete:
		return "incomplete"
	case m.Inner() != nil && m.Inner().MPLS != nil:
		return "mpls inside"
	case m.Inner() != nil && m.Inner().ARP != nil:
		return "arp inside"
	case m.VXLAN != nil && m.VXLAN.Inner != nil:
		return "vxlan inner"
	case m.GRE != nil && m.GRE.Inner != nil:
		return "gre inner"
	case m.IPIP != nil && m.IPIP.Inner != nil:
		return "ipip inner"
	case m.Geneve != nil && m.Geneve.Inner != nil:
		return "geneve inner"
	case m.GTPU != nil && m.GTPU.Inner != nil:
		return "gtpu inner"
	case m.MPLSUDP != nil && m.MPLSUDP.Inner != nil:
		return "mplsudp inner"
	case m.TCP != nil:
		return "tcp"
	case m.UDP != nil:
		return "udp"
	case m.ICMP != nil:
		return "icmp"
	case m.ESP != nil:
		return "esp"
	case m.AH != nil:
		return "ah"
	case m.SCTP != nil:
		return "sctp"
	case m.ARP != nil:
		return "arp"
	case m.MPLS != nil:
		return "mpls"
	}
	return "other"
}

func TestOneSeedDrawsTheSameFlowsAndFrames(t *testing.T) {
	draw := func() ([]flow.Flow, []byte) {
		rng := rand.New(rand.NewPCG(7, 7))
		flows := gen.Flows(rng, 100)
		return flows, gen.Packet(rng, flows)
	}
	flows, frame := draw()
	again, frameAgain := draw()
	if !reflect.DeepEqual(flows, again) || !bytes.Equal(frame, frameAgain) {
		t.Error("the same seed drew something else")
	}
}
