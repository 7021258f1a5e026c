package xdp

import (
	"reflect"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
)

func TestHeadersHaveTheLayoutOfTheObject(t *testing.T) {
	spec, err := loadFlowtally()
	if err != nil {
		t.Fatal(err)
	}
	var c *btf.Struct
	if err := spec.Types.TypeByName("ft_headers", &c); err != nil {
		t.Fatal(err)
	}
	g := reflect.TypeFor[Headers]()
	if got, want := g.Size(), uintptr(c.Size); got != want {
		t.Errorf("size of Headers: got %d, want %d", got, want)
	}
	if got, want := reflect.TypeFor[Key]().Size(), uintptr(Words*8); got != want || Words != 2*levelWords {
		t.Errorf("size of Key: got %d, want %d; %d words", got, want, Words)
	}
	fields := map[string]uintptr{}
	for i := range g.NumField() {
		fields[strings.ToLower(g.Field(i).Name)] = g.Field(i).Offset
	}
	for _, m := range c.Members {
		if strings.HasPrefix(m.Name, "spare") {
			continue
		}
		name := strings.ReplaceAll(m.Name, "_", "")
		off, ok := fields[name]
		if !ok {
			t.Errorf("field %s: Headers has none", m.Name)
		} else if off != uintptr(m.Offset.Bytes()) {
			t.Errorf("field %s: got offset %d, want %d", m.Name, off, m.Offset.Bytes())
		}
	}
}

func TestConstantsEqualThoseOfTheObject(t *testing.T) {
	spec, err := loadFlowtally()
	if err != nil {
		t.Fatal(err)
	}
	enum := func(name string) map[string]uint64 {
		var e *btf.Enum
		if err := spec.Types.TypeByName(name, &e); err != nil {
			t.Fatalf("enum %s: %v", name, err)
		}
		m := map[string]uint64{}
		for _, v := range e.Values {
			m[v.Name] = v.Value
		}
		return m
	}
	flags := enum("ft_flags")
	for name, want := range map[string]Flags{
		"FT_ETH": FlagEth, "FT_TAG1": FlagTag1, "FT_TAG2": FlagTag2, "FT_IPV4": FlagIPv4, "FT_IPV6": FlagIPv6, "FT_FRAG": FlagFrag,
		"FT_LATER": FlagLater, "FT_L4": FlagL4, "FT_TUNNEL": FlagTunnel, "FT_GRE": FlagGRE, "FT_GREKEY": FlagGREKey, "FT_EGRESS": FlagEgress,
		"FT_INCOMPLETE": FlagIncomplete, "FT_TCPFLAGS": FlagTCPFlags, "FT_MPLS": FlagMPLS,
	} {
		if got := flags[name]; got != uint64(want) {
			t.Errorf("%s: got %#x, want %#x", name, got, want)
		}
	}
	words := enum("ft_word")
	for name, want := range map[string]uint64{
		"FT_W_HOT": wordHot, "FT_W_ADDR": wordAddr, "FT_W_ADDR6": wordAddr6, "FT_W_MISC": wordMisc, "FT_W_DST": wordDst,
		"FT_W_SRC": wordSrc, "FT_W_TAGS": wordTags, "FT_LEVEL_WORDS": levelWords,
	} {
		if got := words[name]; got != want {
			t.Errorf("%s: got %d, want %d", name, got, want)
		}
	}
	need := enum("ft_need")
	for name, want := range map[string]uint64{
		"FT_N_ETH": needEth, "FT_N_IPV4": needIPv4, "FT_N_IPV6": needIPv6, "FT_N_MISC": needMisc, "FT_N_L4": needL4,
		"FT_N_TAGS": needTags, "FT_N_VXLAN": needVXLAN, "FT_N_GRE": needGRE, "FT_N_INNER": needInner,
		"FT_N_TCPFLAGS": needTCPFlags, "FT_N_ESP": needESP, "FT_N_MPLS": needMPLS, "FT_N_TCPHIGH": needTCPHigh,
		"FT_N_IPIP": needIPIP, "FT_N_GENEVE": needGeneve, "FT_N_GTPU": needGTPU, "FT_N_MPLSUDP": needMPLSUDP,
		"FT_N_SCTP": needSCTP, "FT_N_AH": needAH, "FT_N_ARP": needARP,
	} {
		if got := need[name]; got != want {
			t.Errorf("%s: got %#x, want %#x", name, got, want)
		}
	}
}
