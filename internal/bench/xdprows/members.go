package xdprows

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
)

func addr4(v uint32) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, v)))
}

func addr6(hi, lo uint64) netip.Addr {
	return netip.AddrFrom16([16]byte(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, hi), lo)))
}

// unicast draws an address from 1.0.0.0 to 223.255.255.255.
func unicast(g *rand.Rand) uint32 { return (1+g.Uint32N(223))<<24 | g.Uint32N(1<<24) }

// memberDraw draws an element of a set.
type memberDraw = func(*rand.Rand) netip.Prefix

// hostsAnywhere draws single addresses of IPv4.
func hostsAnywhere(g *rand.Rand) netip.Prefix { return netip.PrefixFrom(addr4(unicast(g)), 32) }

// listed draws prefixes of IPv4 as blocklists have them: most of 24 and 32 bits, some of 16 to 23, in 30,000 of the networks of 16
// bits.
func listed(g *rand.Rand) netip.Prefix {
	r := rand.New(rand.NewPCG(seed, g.Uint64N(30_000)))
	a := unicast(r)&0xffff0000 | g.Uint32N(1<<16)
	length := 32
	switch v := g.IntN(2000); {
	case v == 0:
		length = 16
	case v < 100:
		for length = 23; length > 17 && g.IntN(2) == 0; length-- {
		}
	case v < 1000:
		length = 24
	}
	return netip.PrefixFrom(addr4(a), length)
}

// listed6 draws prefixes of IPv6 of 32, 48, 64 and 128 bits, in 20,000 networks of 32 bits.
func listed6(g *rand.Rand) netip.Prefix {
	hi := 0x2000_0000_0000_0000 | (g.Uint64N(20_000)*0x9e3779b97f4a7c15)>>35<<32
	hi |= g.Uint64N(1<<16) << 16
	lo := uint64(0)
	length := 48
	switch v := g.IntN(100); {
	case v < 2:
		length = 32
	case v < 40:
		length = 64
		hi |= g.Uint64N(256)
	case v < 70:
		length = 128
		hi |= g.Uint64N(256)
		lo = g.Uint64()
	}
	return netip.PrefixFrom(addr6(hi, lo), length)
}

// allLevels draws prefixes of IPv6 of 38 to 128 bits in one network of 32 bits, so that an address in it may be in 19 levels.
func allLevels(g *rand.Rand) netip.Prefix {
	hi := 0x2001_0db8_0000_0000 | g.Uint64N(1<<32)
	length := min(128, 52+g.IntN(85))
	if g.IntN(5000) == 0 {
		length = 38 + g.IntN(14)
	}
	return netip.PrefixFrom(addr6(hi, g.Uint64()), length)
}

// Kinds of packets of a set.
const (
	packetsMiss = "miss" // of anybody: no element has the address
	packetsHit  = "hit"  // an element has the address
	packetsNear = "near" // a sender's choice: no element has the address, but some have most of its bits
)
