package xdp_test

import (
	"log"
	"net/netip"

	"github.com/flowtally/flowtally/xdp"
)

// Drop all packets from the addresses of a set, and ban another network while the programs run. Run this as root.
func ExampleDatapath_AddMembers() {
	dp, err := xdp.Open(xdp.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dp.Close()

	err = dp.OpenSets(xdp.SetSpec{
		Name:     "blocklist",
		Elements: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::/48")},
	})
	if err != nil {
		log.Fatal(err)
	}
	c, err := dp.AllocCounter("blocklist")
	if err != nil {
		log.Fatal(err)
	}
	var rules []xdp.Rule
	for i, field := range []xdp.Field{{}, {IPv6: true}} {
		m, err := dp.Membership("blocklist", field)
		if err != nil {
			log.Fatal(err)
		}
		r := xdp.Rule{Counter: c.ID, Order: uint32(i), Drop: true}
		r.Mask.Out.Flags = xdp.FlagEgress // received packets alone
		m.Condition(&r, true)
		rules = append(rules, r)
	}
	if err := dp.Add(rules...); err != nil {
		log.Fatal(err)
	}
	if _, err := dp.Attach("eth0", xdp.AttachOptions{Ingress: true}); err != nil {
		log.Fatal(err)
	}

	// When this returns, no packet of the network passes.
	if _, err := dp.AddMembers("blocklist", netip.MustParsePrefix("198.51.100.0/24")); err != nil {
		log.Fatal(err)
	}
}
