package xdp_test

import (
	"fmt"
	"log"
	"net/netip"
	"time"

	"github.com/flowtally/flowtally/xdp"
)

// Drop all packets from banned addresses, and print every second how many each of them has sent. Run this as root. The programs
// are not pinned, so they end with the process.
func Example() {
	banned := []netip.Addr{
		netip.MustParseAddr("192.0.2.1"),
		netip.MustParseAddr("198.51.100.7"),
	}

	dp, err := xdp.Open(xdp.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dp.Close()

	var counters []uint32
	var rules []xdp.Rule
	for _, address := range banned {
		c, err := dp.AllocCounter(address.String())
		if err != nil {
			log.Fatal(err)
		}
		counters = append(counters, c.ID)
		rules = append(rules, dropFrom(address, c.ID))
	}
	if err := dp.Add(rules...); err != nil {
		log.Fatal(err)
	}
	if _, err := dp.Attach("eth0", xdp.AttachOptions{Ingress: true}); err != nil {
		log.Fatal(err)
	}

	values := make([]xdp.Pair, len(counters))
	for range time.Tick(time.Second) {
		if err := dp.Read(counters, values); err != nil {
			log.Fatal(err)
		}
		for i, v := range values {
			fmt.Println(banned[i], v.Packets, "packets", v.Bytes, "bytes")
		}
	}
}

// dropFrom returns a rule that drops received packets from an IPv4 address. FlagEgress in the mask alone excludes sent packets.
func dropFrom(address netip.Addr, counter uint32) xdp.Rule {
	r := xdp.Rule{Counter: counter, Drop: true}
	r.Key.Out.Flags = xdp.FlagIPv4
	r.Mask.Out.Flags = xdp.FlagIPv4 | xdp.FlagEgress

	ip := address.As4()
	copy(r.Key.Out.Addr[:], ip[:])
	copy(r.Mask.Out.Addr[:], []byte{0xff, 0xff, 0xff, 0xff})
	return r
}
