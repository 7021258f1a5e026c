package flow_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/flowtally/flowtally/dataplane/flow"
)

func fieldErrors(t *testing.T, err error) map[string]*flow.FieldError {
	t.Helper()
	out := map[string]*flow.FieldError{}
	if err == nil {
		return out
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%T is not joined", err)
	}
	for _, e := range joined.Unwrap() {
		var f *flow.FieldError
		if !errors.As(e, &f) || !errors.Is(e, flow.ErrInvalid) {
			t.Fatalf("%T %v is no FieldError", e, e)
		}
		out[f.Field] = f
	}
	return out
}

func TestMatchValidateNamesEachWrongField(t *testing.T) {
	for _, c := range []struct {
		name  string
		match flow.Match
		want  []string // fields that are wrong
	}{
		{"the zero match", flow.Match{}, nil},
		{"ipv4 and ipv6", flow.Match{IPv4: &flow.IPv4{}, IPv6: &flow.IPv6{}}, []string{"ipv6"}},
		{"tcp and udp", flow.Match{TCP: &flow.TCP{}, UDP: &flow.Ports{}}, []string{"udp"}},
		{"udp under vxlan", flow.Match{UDP: &flow.Ports{}, VXLAN: &flow.VXLAN{}}, nil},
		{"udp of vxlan's port", flow.Match{UDP: &flow.Ports{Dst: flow.Port{Value: 4000, Last: 5000}}, VXLAN: &flow.VXLAN{}}, nil},
		{"udp of another port", flow.Match{UDP: &flow.Ports{Dst: flow.Port{Value: 1, Mask: 0xffff}}, VXLAN: &flow.VXLAN{}}, []string{"udp.dport"}},
		{"vxlan and gre and tcp", flow.Match{TCP: &flow.TCP{}, VXLAN: &flow.VXLAN{}, GRE: &flow.GRE{}}, []string{"vxlan", "gre"}},
		{"three tags", flow.Match{VLAN: make([]flow.VLAN, 3)}, []string{"vlan"}},
		{"mask too wide", flow.Match{VLAN: []flow.VLAN{{}, {ID: number[uint16](0, 0x1000)}}}, []string{"vlan[1].id"}},
		{"value outside its mask", flow.Match{Eth: &flow.Eth{Type: number[uint16](3, 1)}}, []string{"eth.type"}},
		{"address outside its mask", flow.Match{IPv6: &flow.IPv6{Src: flow.Addr6{Addr: [16]byte{1}}}}, []string{"ipv6.src"}},
		{"MAC outside its mask", flow.Match{Eth: &flow.Eth{Dst: flow.MAC{Addr: [6]byte{1}}}}, []string{"eth.dst"}},
		{"range backwards", flow.Match{TCP: &flow.TCP{Ports: flow.Ports{Src: flow.Port{Value: 9, Last: 3}}}}, []string{"tcp.sport"}},
		{"range of one", flow.Match{TCP: &flow.TCP{Ports: flow.Ports{Src: flow.Port{Value: 9, Last: 9}}}}, []string{"tcp.sport"}},
		{"range with a mask", flow.Match{TCP: &flow.TCP{Ports: flow.Ports{Dst: flow.Port{Value: 1, Mask: 1, Last: 9}}}}, []string{"tcp.dport"}},
		{"no such fragment", flow.Match{IPv4: &flow.IPv4{Fragment: 9}}, []string{"ipv4.frag"}},
		{"another protocol", flow.Match{IPv4: &flow.IPv4{Proto: number[uint8](17, 255)}, TCP: &flow.TCP{}}, []string{"ipv4.proto"}},
		{"a mask that allows the protocol", flow.Match{IPv4: &flow.IPv4{Proto: number[uint8](2, 2)}, TCP: &flow.TCP{}}, nil},
		{"icmpv6's number over ipv4", flow.Match{IPv4: &flow.IPv4{Proto: number[uint8](58, 255)}, ICMP: &flow.ICMP{}}, []string{"ipv4.proto"}},
		{"icmpv6's number over ipv6", flow.Match{IPv6: &flow.IPv6{NextHeader: number[uint8](58, 255)}, ICMP: &flow.ICMP{}}, nil},
		{"icmp's number over ipv6", flow.Match{IPv6: &flow.IPv6{NextHeader: number[uint8](1, 255)}, ICMP: &flow.ICMP{}}, []string{"ipv6.nexthdr"}},
		{"an extension header before tcp", flow.Match{IPv6: &flow.IPv6{NextHeader: number[uint8](60, 255)}, TCP: &flow.TCP{}}, nil},
		{"a type that is not IP's", flow.Match{Eth: &flow.Eth{Type: number[uint16](0x0806, 0xffff)}, GRE: &flow.GRE{}}, []string{"eth.type"}},
		{"a type that is the other IP's", flow.Match{Eth: &flow.Eth{Type: number[uint16](0x86dd, 0xffff)}, IPv4: &flow.IPv4{}}, []string{"eth.type"}},
		{"a later fragment bare", flow.Match{IPv4: &flow.IPv4{Fragment: flow.FragmentLater}, GRE: &flow.GRE{}}, nil},
		{"a key in a later fragment", flow.Match{IPv4: &flow.IPv4{Fragment: flow.FragmentLater}, GRE: &flow.GRE{Inner: &flow.Match{}}}, []string{"ipv4.frag"}},
		{"vxlan in a later fragment", flow.Match{IPv4: &flow.IPv4{Fragment: flow.FragmentLater}, VXLAN: &flow.VXLAN{}}, []string{"ipv4.frag"}},
		{"incomplete alone", flow.Match{Incomplete: true}, nil},
		{"incomplete with a bare clause", flow.Match{Incomplete: true, IPv6: &flow.IPv6{}, UDP: &flow.Ports{}}, nil},
		{"incomplete with a port", flow.Match{Incomplete: true, UDP: &flow.Ports{Dst: flow.Port{Value: 1, Last: 9}}}, []string{"incomplete"}},
		{"incomplete with a type", flow.Match{Incomplete: true, ICMP: &flow.ICMP{Type: number[uint8](8, 255)}}, []string{"incomplete"}},
		{"incomplete with a tunnel", flow.Match{Incomplete: true, GRE: &flow.GRE{}}, []string{"incomplete"}},
		{"incomplete in a later fragment", flow.Match{Incomplete: true, IPv4: &flow.IPv4{Fragment: flow.FragmentLater}}, []string{"incomplete"}},
		{"incomplete in a later fragment of IPv6", flow.Match{Incomplete: true, IPv6: &flow.IPv6{Fragment: flow.FragmentLater}}, []string{"incomplete"}},
		{"a mask of flags of more than 12 bits", flow.Match{TCP: &flow.TCP{Flags: flow.Masked[flow.TCPFlags]{Value: flow.SYN, Mask: 0x1002}}}, []string{"tcp.flags"}},
		{"flags outside their mask", flow.Match{TCP: &flow.TCP{Flags: flow.Masked[flow.TCPFlags]{Value: flow.SYN, Mask: flow.ACK}}}, []string{"tcp.flags"}},
		{"an SPI outside its mask", flow.Match{ESP: &flow.ESP{SPI: number[uint32](3, 1)}}, []string{"esp.spi"}},
		{"ah without a family", flow.Match{AH: &flow.AH{}}, []string{"ah"}},
		{"ah over IPv6", flow.Match{IPv6: &flow.IPv6{}, AH: &flow.AH{}}, []string{"ah"}},
		{"ah inside", flow.Match{VXLAN: &flow.VXLAN{Inner: &flow.Match{AH: &flow.AH{}}}}, []string{"vxlan.inner.ah"}},
		{"an address of ARP outside its mask", flow.Match{ARP: &flow.ARP{Sender: flow.Addr4{Addr: [4]byte{1}}}}, []string{"arp.sender"}},
		{"ARP with IP", flow.Match{ARP: &flow.ARP{}, UDP: &flow.Ports{}}, []string{"arp"}},
		{"a tag of SCTP outside its mask", flow.Match{SCTP: &flow.SCTP{Tag: number[uint32](3, 1)}}, []string{"sctp.vtag"}},
		{"a TOS outside its mask", flow.Match{IPv4: &flow.IPv4{TOS: number[uint8](0xff, 0xfc)}}, []string{"ipv4.tos"}},
		{"a label too wide", flow.Match{MPLS: &flow.MPLS{Label: number[uint32](1<<20, 1<<21-1)}}, []string{"mpls.label"}},
		{"mpls with IP", flow.Match{MPLS: &flow.MPLS{}, IPv6: &flow.IPv6{}}, []string{"mpls"}},
		{"incomplete with TCP ports, whose flags may be cut", flow.Match{Incomplete: true, TCP: &flow.TCP{Ports: flow.Ports{Dst: flow.Port{Value: 1, Last: 9}}}}, nil},
		{"incomplete with TCP flags", flow.Match{Incomplete: true, TCP: &flow.TCP{Flags: flow.Masked[flow.TCPFlags]{Mask: 2}}}, []string{"incomplete"}},
		{"untagged with a tag", flow.Match{Untagged: true, VLAN: make([]flow.VLAN, 1)}, []string{"untagged"}},
		{"a kind of fragment without a word", flow.Match{IPv6: &flow.IPv6{Fragment: 9}}, []string{"ipv6.frag"}},
		{"incomplete inside", flow.Match{VXLAN: &flow.VXLAN{Inner: &flow.Match{Incomplete: true}}}, nil},
		{"inside", flow.Match{GRE: &flow.GRE{Inner: &flow.Match{IPv4: &flow.IPv4{}, IPv6: &flow.IPv6{}}}}, []string{"gre.inner.ipv6"}},
		{"a tunnel inside", flow.Match{VXLAN: &flow.VXLAN{Inner: &flow.Match{GRE: &flow.GRE{}}}}, []string{"vxlan.inner.gre"}},
		{"udp under geneve", flow.Match{UDP: &flow.Ports{Src: flow.Port{Value: 1, Mask: 0xffff}}, Geneve: &flow.Geneve{}}, nil},
		{"udp of another port than gtpu's", flow.Match{UDP: &flow.Ports{Dst: flow.Port{Value: 1, Mask: 0xffff}}, GTPU: &flow.GTPU{}}, []string{"udp.dport"}},
		{"two tunnels over udp", flow.Match{UDP: &flow.Ports{}, VXLAN: &flow.VXLAN{}, Geneve: &flow.Geneve{}}, []string{"geneve"}},
		{"a VNI too wide", flow.Match{Geneve: &flow.Geneve{VNI: number[uint32](1<<24, 1<<25-1)}}, []string{"geneve.vni"}},
		{"a label too wide over udp", flow.Match{MPLSUDP: &flow.MPLSUDP{MPLS: flow.MPLS{Label: number[uint32](1<<20, 1<<21-1)}}}, []string{"mplsudp.label"}},
		{"ip in ip of one of its protocols", flow.Match{IPv4: &flow.IPv4{Proto: number[uint8](41, 255)}, IPIP: &flow.IPIP{}}, nil},
		{"ip in ip of another protocol", flow.Match{IPv4: &flow.IPv4{Proto: number[uint8](47, 255)}, IPIP: &flow.IPIP{}}, []string{"ipv4.proto"}},
		{"IPv4 in IP of the protocol of IPv6", flow.Match{IPv4: &flow.IPv4{Proto: number[uint8](41, 255)}, IPIP: &flow.IPIP{Inner: &flow.Match{IPv4: &flow.IPv4{}}}}, []string{"ipv4.proto"}},
		{"ip in ip bare in a later fragment", flow.Match{IPv4: &flow.IPv4{Fragment: flow.FragmentLater}, IPIP: &flow.IPIP{}}, nil},
		{"ip in ip with a packet in a later fragment", flow.Match{IPv4: &flow.IPv4{Fragment: flow.FragmentLater}, IPIP: &flow.IPIP{Inner: &flow.Match{}}}, []string{"ipv4.frag"}},
		{"Ethernet inside ip", flow.Match{IPIP: &flow.IPIP{Inner: &flow.Match{Eth: &flow.Eth{}}}}, []string{"ipip.inner"}},
		{"a tag inside gtpu", flow.Match{GTPU: &flow.GTPU{Inner: &flow.Match{VLAN: make([]flow.VLAN, 1)}}}, []string{"gtpu.inner"}},
		{"mpls inside mplsudp", flow.Match{MPLSUDP: &flow.MPLSUDP{Inner: &flow.Match{MPLS: &flow.MPLS{}}}}, []string{"mplsudp.inner"}},
		{"Ethernet inside geneve", flow.Match{Geneve: &flow.Geneve{Inner: &flow.Match{Eth: &flow.Eth{}}}}, nil},
		{"incomplete with ip in ip", flow.Match{Incomplete: true, IPIP: &flow.IPIP{}}, []string{"incomplete"}},
		{"incomplete with gtpu", flow.Match{Incomplete: true, GTPU: &flow.GTPU{}}, []string{"incomplete"}},
		{"several at once", flow.Match{IPv4: &flow.IPv4{TTL: number[uint8](1, 0)}, IPv6: &flow.IPv6{}, TCP: &flow.TCP{Ports: flow.Ports{Src: flow.Port{Value: 2, Last: 1}}}, UDP: &flow.Ports{}},
			[]string{"ipv4.ttl", "ipv6", "tcp.sport", "udp"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := fieldErrors(t, c.match.Validate())
			for _, field := range c.want {
				if e := got[field]; e == nil || e.Cause == "" || e.Fix == "" {
					t.Errorf("%s: error %v, want one with a cause and a fix", field, e)
				}
				delete(got, field)
			}
			for field, e := range got {
				t.Errorf("%s: error %v, want none", field, e)
			}
		})
	}
}

func TestMatchThatContainsItselfIsInvalidAndPrints(t *testing.T) {
	m := flow.Match{VXLAN: &flow.VXLAN{}}
	m.VXLAN.Inner = &m
	if err := m.Validate(); err == nil || m.String() == "" {
		t.Error("a match inside itself validates")
	}
}

func TestFlowValidateNamesEachWrongField(t *testing.T) {
	for _, c := range []struct {
		name string
		flow flow.Flow
		want []string
	}{
		{"whole", flow.Flow{Name: "web/443", Interface: "eth0", Labels: map[string]string{"team": "édge"}}, nil},
		{"the longest name", flow.Flow{Name: strings.Repeat("a", 63)}, nil},
		{"no name", flow.Flow{}, []string{"name"}},
		{"a name too long", flow.Flow{Name: strings.Repeat("a", 64)}, []string{"name"}},
		{"a name that starts badly", flow.Flow{Name: "-x"}, []string{"name"}},
		{"a name with a blank", flow.Flow{Name: "a b"}, []string{"name"}},
		{"a name that is not ASCII", flow.Flow{Name: "aé"}, []string{"name"}},
		{"direction and action", flow.Flow{Name: "a", Direction: 2, Action: 3}, []string{"direction", "action"}},
		{"interface too long", flow.Flow{Name: "a", Interface: "abcdefghijklmnop"}, []string{"interface"}},
		{"interface with a slash", flow.Flow{Name: "a", Interface: "a/b"}, []string{"interface"}},
		{"interface ..", flow.Flow{Name: "a", Interface: ".."}, []string{"interface"}},
		{"labels", flow.Flow{Name: "a", Labels: map[string]string{"1a": "", "b-c": "", "": "", "d": "\n", "e": "\xff", "f": "\u009b2J", "g": "\u202e"}},
			[]string{"labels[1a]", "labels[b-c]", "labels[]", "labels[d]", "labels[e]", "labels[f]", "labels[g]"}},
		{"all the labels that fit", flow.Flow{Name: "a", Labels: map[string]string{"k": strings.Repeat("x", 98), "l": strings.Repeat("x", 151)}}, nil},
		{"a byte more", flow.Flow{Name: "a", Labels: map[string]string{"k": strings.Repeat("x", 98), "l": strings.Repeat("x", 152)}}, []string{"labels"}},
		{"match", flow.Flow{Name: "a", Match: flow.Match{TCP: &flow.TCP{}, UDP: &flow.Ports{}}}, []string{"udp"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.flow.Validate()
			got := fieldErrors(t, err)
			for _, field := range c.want {
				if got[field] == nil || got[field].Flow != c.flow.Name {
					t.Errorf("%s: error %v, want one that names the flow", field, got[field])
				}
			}
			if len(got) != len(c.want) {
				t.Errorf("errors %v, want %v", err, c.want)
			}
		})
	}
	err := flow.Flow{Name: "web", Match: flow.Match{TCP: &flow.TCP{Ports: flow.Ports{Dst: flow.Port{Value: 90, Last: 80}}}}}.Validate()
	if want := `flow "web": tcp.dport: the range runs backwards; did you mean 80-90?`; err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
}

func TestValidateInterfaceFollowsTheKernelsRule(t *testing.T) {
	for name, want := range map[string]string{
		"eth0": "", "abcdefghijklmno": "", "é": "",
		"": "empty", "abcdefghijklmnop": "longer than 15 bytes", ".": "no name", "..": "no name",
		"a/b": "no name", "a:b": "no name", "a b": "no name", "a\n": "no name", "a\x00": "no name",
	} {
		err := flow.ValidateInterface(name)
		if want == "" {
			if err != nil {
				t.Errorf("%q: %v", name, err)
			}
			continue
		}
		var field *flow.FieldError
		if !errors.As(err, &field) || field.Field != "interface" || field.Fix == "" || !strings.Contains(field.Cause, want) {
			t.Errorf("%q: error %v, want one that says %q", name, err, want)
		}
	}
}

// A text that is shortened to stay readable stays valid UTF-8.
func TestShortenedWordsStayValidUTF8(t *testing.T) {
	for pad := range 4 {
		word := strings.Repeat("x", pad) + strings.Repeat("€", 40)
		err := flow.Flow{Name: "a", Labels: map[string]string{word: ""}}.Validate()
		if err == nil || !utf8.ValidString(err.Error()) || !strings.Contains(err.Error(), "…") {
			t.Errorf("error %q is no text, or says all of the word", err)
		}
	}
}

// The mirror keeps a flow's text: its longest form must be known to fit there.
func TestLongestTextFitsTheMirror(t *testing.T) {
	const (
		addr6 = "2001:1111:1111:1111:1111:1111:1111:1111/bbbb:bbbb:bbbb:bbbb:bbbb:bbbb:bbbb:bbbb"
		half  = "eth src 02:00:00:00:00:01/aa:aa:aa:aa:aa:ab dst 02:00:00:00:00:01/aa:aa:aa:aa:aa:ab type 0x86dc/0xfffe " +
			"vlan id 2048/0xffe pcp 4/0x6 dei 1 vlan id 2048/0xffe pcp 4/0x6 dei 1 " +
			"ipv6 src " + addr6 + " dst " + addr6 + " label 0xabcde/0xffffe nexthdr 16/0xfe tclass 0x20/0xfe hoplimit 128/0xfe frag no "
	)
	text := half + "udp sport 10000-10001 dport 4096-65535 geneve vni 16777214/0xfffffe inner " +
		strings.Replace(half, " nexthdr 16/", " nexthdr 6/", 1) + "tcp sport 10000-10001 dport 10000-10001"
	m, err := flow.ParseMatch(text)
	if err != nil {
		t.Fatal(err)
	}
	if m.String() != text {
		t.Errorf("written as %q", m)
	}
	if len(text) > 1024 {
		t.Errorf("the longest text has %d bytes, want at most 1024", len(text))
	}
	t.Logf("the longest text has about %d bytes", len(text))
}
