package xdp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// The protocol and the port say which tunnel a rule is for, and one flag that its header is there. The rules are kept in pins: those
// of VXLAN and GRE must stay as the versions before have written them, or a start would take a total for one of other packets.
func TestRulesOfTunnelsHaveAProtocolAPortAndAFlag(t *testing.T) {
	for _, c := range []struct {
		match string
		want  string // of each rule: protocol, destination port, flags of the key and of the mask, number and its mask
	}{
		{"vxlan", "17 4789 0x80/0x80 00000000/00000000"},
		{"vxlan vni 5", "17 4789 0x180/0x180 00000500/ffffff00"},
		{"vxlan inner any", "17 4789 0x180/0x180 00000000/00000000"},
		{"gre", "47 0 0x0/0x0 00000000/00000000"},
		{"gre key 7", "47 0 0x600/0x600 00000007/ffffffff"},
		{"gre inner any", "47 0 0x200/0x200 00000000/00000000"},
		{"ipip", "4 0 0x0/0x0 00000000/00000000; 41 0 0x0/0x0 00000000/00000000"},
		{"ipip inner any", "4 0 0x100/0x100 00000000/00000000; 41 0 0x100/0x100 00000000/00000000"},
		{"ipip inner ipv4", "4 0 0x100/0x100 00000000/00000000"},
		{"ipv4 ipip inner ipv6 frag no", "41 0 0x108/0x108 00000000/00000000"},
		{"ipv4 proto 41 ipip", "41 0 0x8/0x8 00000000/00000000"},
		{"geneve", "17 6081 0x80/0x80 00000000/00000000"},
		{"geneve vni 5", "17 6081 0x180/0x180 00000500/ffffff00"},
		{"gtpu teid 0x1000/0xf000", "17 2152 0x180/0x180 00001000/0000f000"},
		{"mplsudp label 16 bos 1", "17 6635 0x180/0x180 00010100/fffff100"},
		{"mplsudp inner ipv6", "17 6635 0x180/0x180 00000000/00000000"},
	} {
		rules, err := compile(backend.Placed{Flow: flow.MustParse("m", c.match)}, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range rules {
			k, m := r.Key.Out, r.Mask.Out
			const egress = 1 << 11 // in the mask of every rule
			got = append(got, fmt.Sprintf("%d %d %#x/%#x %x/%x", k.Proto, int(k.L4[2])<<8|int(k.L4[3]), uint16(k.Flags), uint16(m.Flags)&^egress, k.Tunnel, m.Tunnel))
			if m.Proto != 0xff {
				t.Errorf("%s: the mask of the protocol is %#x", c.match, m.Proto)
			}
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.match, text, c.want)
		}
	}
}
