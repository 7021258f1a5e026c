package xdp

import (
	"encoding/binary"
	"slices"
)

// Layers that the rules look at, as bits: enum ft_need of bpf/config.h.
const (
	needEth = 1 << iota
	needIPv4
	needIPv6
	needMisc
	needL4
	needTags
	needVXLAN
	needGRE
	needTCPFlags // with needL4
	needESP      // with needL4
	needMPLS
	needTCPHigh // with needTCPFlags and needMisc
	needIPIP
	needGeneve
	needGTPU
	needMPLSUDP
	needSCTP // with needL4; with needTags for the verification tag
	needAH   // with needL4
	needARP
	needSet        // and the bits behind it: a bit for each pair of a set and an address; with needMisc
	needInner = 32 // shift

	// needClass is the shift of the classes of frames that the rules may match: enum ft_class of bpf/tree.h.
	needClass = 60
	// needTree is set if a rule is in the trees.
	needTree = 1 << 63

	needLayers = 1<<needClass - 1

	// needSets are the bits of all pairs of sets and addresses: FT_N_SETS of bpf/config.h.
	needSets = (1<<outerPairs-1)*needSet | (1<<innerPairs-1)*needSet<<needInner

	// needLevel is set on the inner level if a rule looks at any inner header. It reuses a bit, because the parser does not look
	// for a tunnel within a tunnel.
	needLevel = needVXLAN
)

// Words of one level of headers: enum ft_word of bpf/key.h.
const (
	wordHot = iota
	wordAddr
	wordAddr6
	_
	_
	wordMisc
	wordDst
	wordSrc
	wordTags
	levelWords
)

// Protocols above IP.
const (
	protoIPIP = 4
	protoTCP  = 6
	protoUDP  = 17
	protoIPv6 = 41
	protoGRE  = 47
	protoESP  = 50
	protoAH   = 51
	protoSCTP = 132
)

// EtherTypes.
const (
	typeIPv4 = 0x0800
	typeARP  = 0x0806
	typeIPv6 = 0x86dd
)

// needOf returns the layers that a program must parse to decide a rule, and the classes of frames that the rule may match.
func needOf(r *Rule) uint64 {
	need := classesOf(r)<<needClass | needOfLevel(&r.Key.Out, &r.Mask.Out, r.Mask.words()[:levelWords])

	inner := r.Mask.words()[levelWords:]
	inside := slices.Max(inner) != 0
	tunnel := r.Mask.Out.Flags & (FlagTunnel | FlagGRE | FlagGREKey)
	number := r.Mask.Out.Tunnel != [4]byte{} && r.Key.Out.Flags&r.Mask.Out.Flags&FlagMPLS == 0 // of a tunnel
	if !inside && tunnel == 0 && !number {
		return need
	}

	need |= needTags | ipNeed(&r.Key.Out, &r.Mask.Out) | tunnelNeed(&r.Key.Out, &r.Mask.Out)
	if inside {
		need |= (needLevel | needOfLevel(&r.Key.In, &r.Mask.In, inner)) << needInner & needLayers
	}
	return need
}

// tunnelNeed returns the tunnels that a rule may look into: those that its flags, its protocol and its destination port admit.
func tunnelNeed(key, mask *Headers) (need uint64) {
	flags := mask.Flags & (FlagTunnel | FlagGRE | FlagGREKey)
	for _, t := range [...]struct {
		need  uint64
		flags Flags
		proto uint8
		port  uint16 // 0: the tunnel is not over UDP
	}{
		{needGRE, FlagGRE | FlagGREKey, protoGRE, 0},
		{needIPIP, FlagTunnel, protoIPIP, 0},
		{needIPIP, FlagTunnel, protoIPv6, 0},
		{needVXLAN, FlagTunnel, protoUDP, 4789},
		{needGeneve, FlagTunnel, protoUDP, 6081},
		{needGTPU, FlagTunnel, protoUDP, 2152},
		{needMPLSUDP, FlagTunnel, protoUDP, 6635},
	} {
		port := [2]byte{uint8(t.port >> 8), uint8(t.port)}
		switch {
		case flags != 0 && flags&t.flags == 0:
		case !admitsProto(key, mask, t.proto):
		case t.port != 0 && (port[0]&mask.L4[2] != key.L4[2] || port[1]&mask.L4[3] != key.L4[3]):
		default:
			need |= t.need
		}
	}
	return need
}

// classesOf returns the classes of frames that a rule may match. A rule that requires a field of IP cannot match a frame without IP,
// even if it names no IP version.
func classesOf(r *Rule) uint64 {
	k, m := &r.Key.Out, &r.Mask.Out
	if k.Flags&m.Flags&FlagIPv4 != 0 {
		return 1 << classIPv4
	}
	if k.Flags&m.Flags&FlagIPv6 != 0 {
		return 1 << classIPv6
	}
	if k.Flags&m.Flags&FlagMPLS != 0 {
		return 1 << classOther // the parser stops at MPLS
	}
	var classes uint64
	const above = FlagFrag | FlagLater | FlagTunnel | FlagGRE | FlagGREKey
	ip := k.Flags&FlagL4 != 0 || k.L4 != [4]byte{} || k.Addr != [32]byte{}
	if k.Flags&above == 0 && k.Proto == 0 && (!ip || admitsType(k, m, typeARP)) {
		classes |= 1 << classOther
	}
	if m.Flags&FlagIPv4 == 0 && admitsType(k, m, typeIPv4) {
		classes |= 1 << classIPv4
	}
	if m.Flags&FlagIPv6 == 0 && admitsType(k, m, typeIPv6) {
		classes |= 1 << classIPv6
	}
	return classes
}

// Classes of frames: enum ft_class of bpf/tree.h.
const (
	classOther = iota
	classIPv4
	classIPv6
)

// needOfLevel returns the layers to parse for one level of headers. w holds the words of mask.
func needOfLevel(key, mask *Headers, w []uint64) uint64 {
	var need uint64
	if w[wordDst]|w[wordSrc] != 0 {
		need |= needEth
	}
	if w[wordTags] != 0 {
		need |= needTags
	}
	if mask.Flags&FlagIPv4 != 0 {
		need |= needIPv4
	}
	if mask.Flags&FlagIPv6 != 0 || w[wordAddr6]|w[wordAddr6+1]|w[wordAddr6+2] != 0 {
		need |= needIPv6
	}
	if w[wordMisc] != 0 {
		need |= needMisc | ipNeed(key, mask)
	}
	need |= answersOf(mask) * needSet
	if mask.L4 != [4]byte{} || mask.Flags&(FlagL4|FlagIncomplete) != 0 {
		need |= needL4 | ipNeed(key, mask)
	}
	if mask.TCPFlags != 0 || mask.Flags&(FlagTCPFlags|FlagIncomplete) != 0 {
		need |= needTCPFlags | needL4 | ipNeed(key, mask)
	}
	if mask.TCPHigh != 0 {
		need |= needTCPHigh | needTCPFlags | needMisc | needL4 | ipNeed(key, mask)
	}
	ip := ipNeed(key, mask) != 0
	incomplete := mask.Flags&FlagIncomplete != 0
	l4 := mask.L4 != [4]byte{} || mask.Flags&FlagL4 != 0
	entry := mask.Tunnel != [4]byte{} || incomplete
	if ip && (incomplete || l4 && admitsProto(key, mask, protoESP)) {
		need |= needESP
	}
	if ip && (incomplete || l4 && admitsProto(key, mask, protoAH)) {
		need |= needAH
	}
	const tunnel = FlagTunnel | FlagGRE | FlagGREKey
	if ip && (incomplete || (l4 || entry) && admitsProto(key, mask, protoSCTP) && key.Flags&mask.Flags&(tunnel|FlagMPLS) == 0) {
		need |= needSCTP
	}
	const not = FlagIPv4 | FlagIPv6 | tunnel // no packet with MPLS or ARP has these
	outside := key.Flags&mask.Flags&not == 0 && key.Proto == 0
	if mask.Flags&FlagMPLS != 0 || entry && outside {
		need |= needMPLS
	}
	if (incomplete || l4 || w[wordAddr] != 0) && outside && admitsType(key, mask, typeARP) {
		need |= needARP
	}
	if mask.Proto != 0 || mask.Flags&(FlagFrag|FlagLater) != 0 || w[wordAddr] != 0 {
		need |= ipNeed(key, mask)
	}
	return need
}

// admitsType reports whether a packet of an EtherType can match. A frame without Ethernet has no EtherType.
func admitsType(key, mask *Headers, typ uint16) bool {
	return key.Flags&mask.Flags&FlagEth == 0 || typ&binary.BigEndian.Uint16(mask.EthType[:]) == binary.BigEndian.Uint16(key.EthType[:])
}

// admitsProto reports whether a packet of a protocol above IP can match.
func admitsProto(key, mask *Headers, proto uint8) bool { return proto&mask.Proto == key.Proto }

// ipNeed returns the IP versions of packets that can match.
func ipNeed(key, mask *Headers) uint64 {
	switch {
	case key.Flags&mask.Flags&FlagIPv4 != 0:
		return needIPv4
	case key.Flags&mask.Flags&FlagIPv6 != 0:
		return needIPv6
	}
	var need uint64
	if admitsType(key, mask, typeIPv4) {
		need |= needIPv4
	}
	if admitsType(key, mask, typeIPv6) {
		need |= needIPv6
	}
	return need
}
