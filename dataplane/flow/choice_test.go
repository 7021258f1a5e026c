package flow_test

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/oracle"
	"github.com/flowtally/flowtally/internal/oracle/gen"
)

func TestSetsAreWrittenInOrderAndReadBackEqual(t *testing.T) {
	for _, c := range []struct{ text, canon string }{
		{"tcp dport {22, 80, 443, 8000-8080}", ""},
		{"tcp dport {443,80 , 22}", "tcp dport {22, 80, 443}"},
		{"tcp dport 80,443", "tcp dport {80, 443}"},
		{"tcp dport 443, 80 udp", ""}, // tcp and udp: an error, below
		{"tcp dport 443 , 80 flags syn/syn", "tcp dport {80, 443} flags syn/syn"},
		{"tcp dport { 22, 80, } sport 1", "tcp sport 1 dport {22, 80}"},
		{"tcp dport {80}", "tcp dport 80"},
		{"tcp dport {80, 80}", "tcp dport 80"},
		{"tcp dport {443-443}", "tcp dport 443"},
		{"tcp dport {80, 1-100, 50-200}", "tcp dport 1-200"},
		{"tcp dport {80, 81}", "tcp dport {80, 81}"},
		{"tcp dport {1024/0xfc00, 80}", "tcp dport {80, 1024/0xfc00}"},
		{"tcp dport {2, 3, 0/0x1}", "tcp dport {0/0x0001, 3}"},
		{"tcp dport !=80", "tcp dport != 80"},
		{"tcp dport != { 80 }", "tcp dport != 80"},
		{"tcp dport !={80,443}", "tcp dport != {80, 443}"},
		{"tcp dport != 80,443", "tcp dport != {80, 443}"},
		{"tcp dport != 1000-2000", ""},
		{"tcp flags {syn, syn|ack}", ""},
		{"tcp flags != syn,ack", ""},
		{"tcp flags != {syn|ack/syn|ack, rst/rst}", "tcp flags != {rst/rst, syn|ack/syn|ack}"},
		{"ipv4 src 10.0.0.5-10.0.0.9", ""},
		{"ipv4 src 10.0.0.4-10.0.0.7", "ipv4 src 10.0.0.4/30"},
		{"ipv4 src 0.0.0.0-255.255.255.255", ""},
		{"ipv4 src {10.0.0.0/8, 192.168.0.0/16, 10.1.0.0/16} dst != 10.0.0.1", "ipv4 src {10.0.0.0/8, 192.168.0.0/16} dst != 10.0.0.1"},
		{"ipv4 src != {10.0.0.0/8, 192.168.0.0/16}", ""},
		{"ipv4 src {10.0.0.1/255.0.0.255, 10.0.0.0/24}", "ipv4 src {10.0.0.0/24, 10.0.0.1/255.0.0.255}"},
		{"ipv6 src 2001:db8::5-2001:db8::9", ""},
		{"ipv6 dst {::1, 2001:db8::/32}", ""},
		{"ipv6 dst ::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ""},
		{"eth src {02:00:00:00:00:02, 02:00:00:00:00:01}", "eth src {02:00:00:00:00:01, 02:00:00:00:00:02}"},
		{"eth type {0x0800, 2054}", "eth type {0x0800, 0x0806}"},
		{"ipv4 ttl 0-3", ""},
		{"ipv4 ttl 0-0", "ipv4 ttl 0"},
		{"ipv4 tos 16-31", "ipv4 tos 0x10-0x1f"},
		{"vlan id 1-9 vlan id != 7", ""},
		{"vlan vlan id {5, 6}", ""},
		{"mpls label {16, 17} bos != 1", ""},
		{"esp spi {1, 2}", "esp spi {0x00000001, 0x00000002}"},
		{"icmp type {8, 0}", "icmp type {0, 8}"},
		{"ipv4 proto {6, 17} tcp", ""},
		{"ipv4 proto {tcp, udp}", "ipv4 proto {6, 17}"},
		{"ipv4 proto tcp, udp", "ipv4 proto {6, 17}"},
		{"ipv4 proto != tcp", "ipv4 proto != 6"},
		{"ipv6 nexthdr ipv6-icmp,udp", "ipv6 nexthdr {17, 58}"},
		{"tcp dport {ssh, https, ftp-data-ftp}", "tcp dport {20-21, 22, 443}"},
		{"icmp type {echo-request, 3} ipv4", "ipv4 icmp type {3, 8}"},
		{"ipv6 icmp type != {echo-request, nd-neighbor-solicit}", "ipv6 icmp type != {128, 135}"},
		{"ipv4 dscp {ef, af11} ecn 1", "ipv4 dscp {10, 46} ecn 1"},
		{"ipv4 dscp {46} ecn {1, 2}", "ipv4 dscp 46 ecn {1, 2}"},
		{"ipv4 dscp {8/0x38}", ""},
		{"ipv4 dscp 8-15 ecn != 0", ""},
		{"arp op {request, reply} sender 10.0.0.5-10.0.0.9", "arp op {1, 2} sender 10.0.0.5-10.0.0.9"},
		{"gtpu teid {1, 3} inner ipv4 dst != 10.0.0.1", "gtpu teid {0x00000001, 0x00000003} inner ipv4 dst != 10.0.0.1"},
		{"mplsudp label {16, 17} sctp", ""}, // an error, below
		{"ipv4 src {1.2.3.4, 1.2.3.6} vxlan vni {5, 7} inner ipv4 dst != 10.0.0.0/8 tcp dport {80, 443}", ""},
		{"gre key != 0 inner udp sport {1, 3}", ""},
		{"ipv4 src @blocklist", ""},
		{"ipv4 dst @b src @a.1_2-3 tcp dport {80, 22}", "ipv4 src @a.1_2-3 dst @b tcp dport {22, 80}"},
		{"ipv4 src !=@blocklist", "ipv4 src != @blocklist"},
		{"ipv6 src != @src dst @dst", ""}, // words of the grammar are names, too
		{"ipv4 src @a vxlan vni {5, 7} inner ipv6 dst != @a", ""},
	} {
		m, err := flow.ParseMatch(c.text)
		if strings.HasSuffix(c.text, "80 udp") || strings.HasSuffix(c.text, "sctp") {
			if err == nil || !strings.Contains(err.Error(), "at once") || strings.Count(err.Error(), "\n") > 0 {
				t.Errorf("%q: %v", c.text, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		canon := c.canon
		if canon == "" {
			canon = c.text
		}
		if m.String() != canon {
			t.Errorf("%q is written %q, want %q", c.text, m, canon)
		}
		again, err := flow.ParseMatch(m.String())
		if err != nil || !again.Equal(m) || again.String() != canon {
			t.Errorf("%q is written %q, which is read as %q: %v", c.text, m, again, err)
		}
	}
}

func TestMistakesInSetsNameTheValueAndItsPlace(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string // as in TestParseMatchErrorsNameTheWordAndTheCure
	}{
		{"tcp dport {22, 8x0, 443}", []string{"8x0@15|value 2 of the set is no number|a port or its name, first-last or value/mask"}},
		{"tcp dport {22,70000,x}", []string{"70000@14|value 2 of the set|the most is 65535", "x@20|value 3 of the set"}},
		{"tcp dport {22, httpss}", []string{`httpss@15|did you mean "https"?`}},
		{"tcp dport 22,httpss", []string{`httpss@13|did you mean "https"?`}},
		{"icmp type {3, packet-too-big}", []string{`packet-too-big@14|type 2 of ICMPv6 alone`}},
		{"icmp type {3, echo-request}", []string{`echo-request@14|type 8 over IPv4 and type 128 over IPv6`}},
		{"ipv4 tos 0x10/0xf0 ecn {1, 2}", []string{`ecn@19|bits in common`, `{1,@23|a mask of its own`}},
		{"ipv4 dscp {1, 2} tos {1, 2}", []string{`{1,@10|bits in common`, `tos@17|bits in common`, `{1,@21|bits in common`}},
		{"tcp dport != 8x0", []string{"8x0@13|: is no number"}},
		{"tcp dport !=", []string{`@12|expected a port or its name, first-last or value/mask (0 to 65535) after "!="`}},
		{"tcp dport != udp", []string{`udp@13|after "!="`, `udp@13|at once`}},
		{"tcp dport {}", []string{`{@10|the set is empty|leave the field out`}},
		{"tcp dport {22, 80 udp", []string{`{@10|the set has no end|close it with }`, `udp@18|tcp and udp at once`}},
		{"tcp dport {22, {80}}", []string{`{@10|another begins before it`}},
		{"tcp dport {22 80}", []string{`8@14|a comma separates`}},
		{"tcp dport {22,,80}", []string{`,@14|a value is missing`}},
		{"tcp dport {22}80", []string{`80@14|expected a blank`}},
		{"tcp dport 22, udp", []string{`udp@14|a value is missing behind the comma`, `udp@14|at once`}},
		{"tcp dport {22, 80/0xf}", []string{`80/0xf@15|value 2 of the set: the value has bits outside its mask`}},
		{"tcp dport {22, 90-80}", []string{`90-80@15|runs backwards|did you mean 80-90?`}},
		{"tcp dport {22, 0/0}", []string{`0/0@15|matches every value|leave the field out`}},
		{"tcp dport != 0-65535", []string{`!=@10|excludes every value`}},
		{"ipv4 src {10.0.0.1/8, fe80::1}", []string{`10.0.0.1/8@10|did you mean 10.0.0.0/8?`, `fe80::1@22|did you mean the clause "ipv6"?`}},
		{"ipv4 src 10.0.0.9-10.0.0.5", []string{`10.0.0.9-10.0.0.5@9|runs backwards|did you mean 10.0.0.5-10.0.0.9?`}},
		{"ipv4 src 10.0.0.0/8-11.0.0.0/8", []string{`10.0.0.0/8-11.0.0.0/8@9|a range has no mask`}},
		{"ipv4 src 10.0.0.5-9", []string{`10.0.0.5-9@9|did you mean "10.0.0.5-10.0.0.9"?`}},
		{"ipv4 src {10.0.0.1, 10.0.0.5-9}", []string{`10.0.0.5-9@20|did you mean "10.0.0.5-10.0.0.9"?`}},
		{"ipv4 ttl 9-3", []string{`9-3@9|runs backwards|did you mean 3-9?`}},
		{"tcp flags {syn, sym}", []string{`sym@16|is no TCP flag|did you mean "syn"?`}},
		{"tcp dport {1, 2} dport 3", []string{`dport@17|given twice`, `3@23|a value and a set`}},
		{"ipv4 icmp type {3} type {4, 5, echo-request}", []string{`type@19|given twice`}},
		{"ipv4 proto {1, 17} tcp", []string{`{1,@11|tcp is protocol 6`}},
		{"ipv4 proto != 6 tcp", []string{`!=@11|tcp is protocol 6`}},
		{"eth type {0x0806, 0x88cc} ipv4", []string{`{0x0806,@9|excludes the type`}},
		{"udp dport {53, 54} vxlan", []string{`{53,@10|4789`}},
		{"ipv4 frag later tcp dport {1, 2}", []string{`later@10|a later fragment`}},
		{"udp dport {1, 2} incomplete", []string{`incomplete@17|is not there`}},
		{"ipv4 frag {first, later}", []string{`{first,@10|no such kind of fragment|make a flow of each`}},
		{"ipv4 frag != no", []string{`!=@10|no such kind of fragment`}},
		{"tcp dport @ports", []string{`@ports@10|only src and dst of ipv4 and ipv6 take a named set|write the values, as in dport {a, b}`}},
		{"tcp dport != @ports", []string{`@ports@13|only src and dst of ipv4 and ipv6`}},
		{"arp sender @hosts", []string{`@hosts@11|only src and dst of ipv4 and ipv6`}},
		{"eth src @macs", []string{`@macs@8|only src and dst of ipv4 and ipv6`}},
		{"ipv4 frag @later", []string{`@later@10|no such kind of fragment`}},
		{"ipv4 src @", []string{`@@9|the set has no name`}},
		{"ipv4 src @-a", []string{`@-a@9|starts with '-'|a letter or a digit`}},
		{"ipv4 src @a:b", []string{`@a:b@9|holds ':'|letters, digits and . _ - only`}},
		{"ipv4 src @a,@b", []string{`@a,@b@9|one named set|make a flow of each`}},
		{"ipv4 src {@a}", []string{`@a@10|a named set stands alone|did you mean "src @a"?`}},
		{"ipv4 src {10.0.0.1, @a}", []string{`@a@20|a named set stands alone|add the values to the set`}},
		{"ipv4 src 10.0.0.1,@a", []string{`@a@18|a named set stands alone`}},
		{"tcp dport {80, @a}", []string{`@a@15|stands alone|only src and dst`}},
		{"ipv4 src @a src @b", []string{`src@12|given twice`}},
		{"ipv4 src @" + strings.Repeat("a", 64), []string{"@" + strings.Repeat("a", 64) + "@9|longer than 63 bytes|shorten it"}},
	} {
		m, err := flow.ParseMatch(c.text)
		var errs flow.ParseErrors
		if !errors.As(err, &errs) {
			t.Errorf("%q: match %v, error %v, want ParseErrors", c.text, m, err)
			continue
		}
		if len(errs) != len(c.want) {
			t.Errorf("%q: %d errors, want %d:\n%v", c.text, len(errs), len(c.want), err)
			continue
		}
		for i, e := range errs {
			parts := strings.Split(c.want[i], "|")
			if got := fmt.Sprintf("%s@%d", e.Word, e.Offset); got != parts[0] {
				t.Errorf("%q: error %d stands at %s, want %s: %v", c.text, i, got, parts[0], e)
			}
			for _, part := range parts[1:] {
				if !strings.Contains(e.Error(), part) {
					t.Errorf("%q: error %q does not say %q", c.text, e, part)
				}
			}
		}
	}
}

func TestChoicesOfProgramsAreChecked(t *testing.T) {
	tcp := func(c ...flow.Choice) flow.Match { return flow.Match{TCP: &flow.TCP{}, Choices: c} }
	one := func(n uint64) flow.Value {
		return flow.Value{Value: flow.Number{Lo: n}, Mask: flow.Number{Lo: 0xffff}}
	}
	many := make([]flow.Value, 4097)
	for i := range many {
		many[i] = one(uint64(2 * i))
	}
	wide := flow.Match{IPv6: &flow.IPv6{}, TCP: &flow.TCP{}, Choices: []flow.Choice{
		{Clause: "tcp", Field: "dport", Values: many[:100]}, {Clause: "tcp", Field: "sport", Values: many[:100]},
	}}
	for _, c := range []struct {
		name  string
		match flow.Match
		want  map[string]string // parts of the causes by field
	}{
		{"two values", tcp(flow.Choice{Clause: "tcp", Field: "dport", Values: []flow.Value{one(1), one(2)}}), nil},
		{"no value", tcp(flow.Choice{Clause: "tcp", Field: "dport"}), map[string]string{"tcp.dport": "empty"}},
		{"no such field", tcp(flow.Choice{Clause: "tcp", Field: "port", Values: many[:1]}), map[string]string{"tcp.port": "no such field"}},
		{"no set of fragments", flow.Match{IPv4: &flow.IPv4{}, Choices: []flow.Choice{{Clause: "ipv4", Field: "frag", Values: many[:1]}}}, map[string]string{"ipv4.frag": "no such field"}},
		{"no clause", tcp(flow.Choice{Clause: "udp", Field: "dport", Values: many[:1]}), map[string]string{"udp.dport": "lacks"}},
		{"no such tag", flow.Match{VLAN: make([]flow.VLAN, 1), Choices: []flow.Choice{{Clause: "vlan", Tag: 1, Field: "id", Values: many[:1]}}}, map[string]string{"vlan[1].id": "lacks"}},
		{"two sets", tcp(flow.Choice{Clause: "tcp", Field: "dport", Values: many[:2]}, flow.Choice{Clause: "tcp", Field: "dport", Values: many[:1]}), map[string]string{"tcp.dport": "two sets"}},
		{"a value too", flow.Match{TCP: &flow.TCP{Ports: flow.Ports{Dst: flow.Port{Value: 1, Mask: 0xffff}}}, Choices: []flow.Choice{{Clause: "tcp", Field: "dport", Values: many[:1]}}}, map[string]string{"tcp.dport": "a value and a set"}},
		{"too many values", tcp(flow.Choice{Clause: "tcp", Field: "dport", Values: many}), map[string]string{"tcp.dport": "4097 values"}},
		{"too many combinations", wide, map[string]string{"": "10000 combinations"}},
		{"bits outside the mask", tcp(flow.Choice{Clause: "tcp", Field: "dport", Values: []flow.Value{one(1), {Value: flow.Number{Lo: 3}, Mask: flow.Number{Lo: 1}}}}), map[string]string{"tcp.dport": "value 2 of the set: the value has bits"}},
		{"a mask too wide", tcp(flow.Choice{Clause: "tcp", Field: "dport", Values: []flow.Value{{Mask: flow.Number{Lo: 1 << 16}}}}), map[string]string{"tcp.dport": "does not fit in 16 bits"}},
		{"a range of flags", tcp(flow.Choice{Clause: "tcp", Field: "flags", Values: []flow.Value{{Last: flow.Number{Lo: 3}}}}), map[string]string{"tcp.flags": "no ranges"}},
		{"backwards", tcp(flow.Choice{Clause: "tcp", Field: "dport", Values: []flow.Value{{Value: flow.Number{Lo: 3}, Last: flow.Number{Lo: 2}}}}), map[string]string{"tcp.dport": "backwards"}},
		{"a set of ports with a name", tcp(flow.Choice{Clause: "tcp", Field: "dport", Set: "a"}), map[string]string{"tcp.dport": "only src and dst of ipv4 and ipv6"}},
		{"a name and values", flow.Match{IPv4: &flow.IPv4{}, Choices: []flow.Choice{{Clause: "ipv4", Field: "src", Set: "a", Values: many[:1]}}}, map[string]string{"ipv4.src": "values and a named set"}},
		{"no name of a set", flow.Match{IPv4: &flow.IPv4{}, Choices: []flow.Choice{{Clause: "ipv4", Field: "src", Set: "a b"}}}, map[string]string{"ipv4.src": "holds ' '"}},
		{"inside", flow.Match{GRE: &flow.GRE{Inner: &flow.Match{TCP: &flow.TCP{}, Choices: []flow.Choice{{Clause: "tcp", Field: "dport"}}}}}, map[string]string{"gre.inner.tcp.dport": "empty"}},
	} {
		got := fieldErrors(t, c.match.Validate())
		for field, part := range c.want {
			if e := got[field]; e == nil || !strings.Contains(e.Cause, part) || e.Fix == "" {
				t.Errorf("%s: %s: error %v, want one that says %q", c.name, field, e, part)
			}
			delete(got, field)
		}
		for field, e := range got {
			t.Errorf("%s: %s: error %v, want none", c.name, field, e)
		}
		if _, err := c.match.Alternatives(); (err != nil) != (len(c.want) > 0) {
			t.Errorf("%s: Alternatives: %v", c.name, err)
		}
		if c.match.String() == "" {
			t.Errorf("%s: no text", c.name)
		}
	}
}

func TestAlternativesAreTheFewestPlainMatches(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"tcp dport 80", []string{"tcp dport 80"}},
		{"tcp dport {22, 80, 81}", []string{"tcp dport 22", "tcp dport 80-81"}},
		{"tcp dport != 80", []string{"tcp dport 0-79", "tcp dport 81-65535"}},
		{"tcp dport {0/0x1, 3}", []string{"tcp dport 0/0x0001", "tcp dport 3"}},
		{"ipv4 src 10.0.0.5-10.0.0.9", []string{"ipv4 src 10.0.0.5", "ipv4 src 10.0.0.6/31", "ipv4 src 10.0.0.8/31"}},
		{"ipv4 src != 128.0.0.0/2", []string{"ipv4 src 0.0.0.0/1", "ipv4 src 192.0.0.0/2"}},
		{"ipv4 ttl 0-255", []string{"ipv4 ttl 0/0x80", "ipv4 ttl 128/0x80"}},
		{"eth src {02:00:00:00:00:06, 02:00:00:00:00:07, 02:00:00:00:00:09}", []string{"eth src 02:00:00:00:00:06", "eth src 02:00:00:00:00:07", "eth src 02:00:00:00:00:09"}},
		{"mpls bos 0-1", []string{"mpls bos 0", "mpls bos 1"}},
		{"tcp sport {1, 3} dport {5, 7}", []string{"tcp sport 1 dport 5", "tcp sport 3 dport 5", "tcp sport 1 dport 7", "tcp sport 3 dport 7"}},
		{"ipv4 proto {6, 17} tcp", []string{"ipv4 proto 6 tcp"}},
		{"ipv6 nexthdr {6, 17, 0} frag first", []string{"ipv6 nexthdr 0 frag first"}},
		{"eth type {0x0800, 0x86dd} ipv6", []string{"eth type 0x86dd ipv6"}},
		{"vlan vlan id {1, 3}", []string{"vlan vlan id 1", "vlan vlan id 3"}},
		{"gre key {1, 4} inner tcp dport {5, 7}", []string{
			"gre key 1 inner tcp dport 5", "gre key 1 inner tcp dport 7", "gre key 4 inner tcp dport 5", "gre key 4 inner tcp dport 7",
		}},
	} {
		alternatives, err := parsed(t, c.text).Alternatives()
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		var got []string
		for _, m := range alternatives {
			got = append(got, m.String())
		}
		if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", c.text, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

// Masks can cut one another into parts of which others contain all. It takes minutes to find that out about these.
func TestASetOfMasksThatTakesLongToTellApartIsRefused(t *testing.T) {
	var values []string
	for i := range 1 << 10 {
		if bits.OnesCount(uint(i))%2 == 0 {
			values = append(values, fmt.Sprintf("0.0.%d.%d/0.0.3.255", i>>8, i&255))
		} else {
			values = append(values, fmt.Sprintf("0.64.%d.%d/0.64.3.255", i>>8, i&255))
		}
	}
	for i := range 3000 {
		values = append(values, fmt.Sprintf("%d.%d.%d.0/255.127.4.0", i>>6+1, 64+i&31, i>>5&1*4))
	}
	m, err := flow.ParseMatch("ipv4 src {" + strings.Join(values, ", ") + "}")
	if err == nil || !strings.Contains(err.Error(), "more than 4096 masks") {
		t.Errorf("match %.40s…, error %v, want one about the masks", m, err)
	}
}

// A packet that a match selects matches one of its alternatives, and any other packet none. The linear matcher looks at the
// sets themselves.
func TestAPacketMatchesOneAlternativeIfAndOnlyIfItMatchesTheMatch(t *testing.T) {
	hits, misses := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "flows"), rapid.Uint64().Draw(t, "packets")))
		flows := gen.Flows(rng, 8)
		for _, f := range flows {
			alternatives, err := f.Match.Alternatives()
			if err != nil {
				t.Fatal(err)
			}
			if plain := len(f.Match.Choices) == 0 && (f.Match.Inner() == nil || len(f.Match.Inner().Choices) == 0); plain {
				if len(alternatives) != 1 || !reflect.DeepEqual(alternatives[0], f.Match) {
					t.Fatalf("%s without a set has the alternatives %v", f.Match, alternatives)
				}
			}
			for _, a := range alternatives {
				if err := a.Validate(); err != nil || len(a.Choices) > 0 {
					t.Fatalf("%s has the alternative %s: %v", f.Match, a, err)
				}
			}
			for range 8 {
				p := oracle.Packet{Frame: gen.Packet(rng, []flow.Flow{f})}
				want := oracle.Matches(f.Match, p)
				n := 0
				for _, a := range alternatives {
					if oracle.Matches(a, p) {
						n++
					}
				}
				if n > 1 || n == 1 != want {
					t.Fatalf("%s: a packet matches it: %t, and %d of its %d alternatives\n%x", f.Match, want, n, len(alternatives), p.Frame)
				}
				if want {
					hits++
				} else {
					misses++
				}
			}
		}
	})
	t.Logf("%d packets hit, %d missed", hits, misses)
	if hits < misses/4 {
		t.Error("the test looks at little")
	}
}

// Values in another order, values that others contain and joined neighbours change neither the text nor the packets.
func TestOrderAndOverlapOfValuesDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawAsWritten(t)
		canonical := flow.Canonical(m)
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "packets"), 1))
		for range 10 {
			p := oracle.Packet{Frame: gen.Packet(rng, []flow.Flow{{Match: canonical}})}
			if oracle.Matches(m, p) != oracle.Matches(canonical, p) {
				t.Fatalf("%v as written and %s differ about %x", m.Choices, canonical, p.Frame)
			}
		}
	})
}

// Flows of which a packet can match both overlap, and a set overlaps its complement never.
func TestOverlapLooksIntoSets(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"tcp dport {22, 80}", "tcp dport 80", true},
		{"tcp dport {22, 80}", "tcp dport 81", false},
		{"tcp dport {22, 80}", "tcp dport {21, 81}", false},
		{"tcp dport {22, 80-90}", "tcp dport {21, 90-99}", true},
		{"tcp dport {22, 80}", "udp dport {22, 80}", false},
		{"tcp dport != 80", "tcp dport 80", false},
		{"tcp dport != {80, 443}", "tcp dport {80, 443}", false},
		{"tcp dport != {80, 443}", "tcp dport {80, 444}", true},
		{"tcp dport != 0-1000", "tcp dport != 900-65535", false},
		{"tcp dport 0/0x1", "tcp dport {1, 3, 5}", false},
		{"tcp dport {0/0x1, 7}", "tcp dport {1, 3, 6}", true},
		{"tcp dport {1-1, 0/0x3}", "tcp dport 5-7", false},
		{"tcp dport {1-1, 0/0x3}", "tcp dport 5-8", true},
		{"tcp dport {22, 80}", "tcp", true},
		{"tcp dport {22, 80}", "ipv4 frag later", false},
		{"udp dport {22, 80}", "incomplete", false},
		{"ipv4 src 10.0.0.5-10.0.0.9", "ipv4 src 10.0.0.8/30", true},
		{"ipv4 src 10.0.0.5-10.0.0.9", "ipv4 src 10.0.0.10", false},
		{"ipv4 src {10.0.0.0/8, 192.0.2.1}", "ipv6", false},
		{"ipv6 src != 2001:db8::/32", "ipv6 src 2001:db8::1", false},
		{"ipv4 proto {6, 17}", "icmp", false},
		{"ipv4 proto {6, 17}", "udp", true},
		{"ipv4 proto != 6", "tcp", false},
		{"ipv6 nexthdr {6, 0}", "udp", true},
		{"ipv6 nexthdr {6, 17}", "icmp", false},
		{"eth type {0x0806, 0x88cc}", "ipv4", false},
		{"eth type != 0x0800", "ipv4", false},
		{"eth type != 0x0800", "tcp", true},
		{"udp dport {53, 54}", "vxlan", false},
		{"udp dport {53, 4789}", "vxlan", true},
		{"vlan id {1, 2}", "vlan id 3", false},
		{"vlan vlan id {1, 2}", "vlan id 3", true},
		{"tcp flags {syn, syn|ack}", "tcp flags ack/ack", true},
		{"tcp flags {syn, syn|ack}", "tcp flags none/syn", false},
		{"vxlan vni {1, 2}", "vxlan vni {3, 4}", false},
		{"vxlan inner tcp dport {1, 2}", "vxlan inner tcp dport {3, 4}", false},
		{"vxlan inner tcp dport {1, 2}", "vxlan inner tcp dport != 1", true},
	} {
		a, b := flow.Flow{Match: parsed(t, c.a)}, flow.Flow{Match: parsed(t, c.b)}
		if flow.Overlap(&a, &b) != c.want || flow.Overlap(&b, &a) != c.want {
			t.Errorf("%q and %q overlap: want %v", c.a, c.b, c.want)
		}
	}
}

func TestTermsAndValuesOfSets(t *testing.T) {
	m := parsed(t, "ipv4 src != 10.0.0.0/8 tcp dport {22, 80}")
	var got []string
	for _, term := range m.Terms() {
		got = append(got, term.String())
	}
	if want := "ipv4 | ipv4 src != 10.0.0.0/8 | tcp | tcp dport {22, 80}"; strings.Join(got, " | ") != want {
		t.Errorf("terms %v, want %s", got, want)
	}
	if has := m.ValuesIn(parsed(t, "ipv4 src 10.0.0.1 ttl 3 tcp sport 1 dport 25")); has.String() != "ipv4 src 10.0.0.1 tcp dport 25" {
		t.Errorf("values %s", has)
	}
}
