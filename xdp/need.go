package xdp

// Layers that some rule looks at: enum ft_need of bpf/config.h.
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
	needInner = 16 // shift

	// needLevel stands in the place of VXLAN on the inner level: some inner header is looked at.
	needLevel = needVXLAN
)

// Words of one level: enum ft_word of bpf/key.h.
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

const protoESP = 50

// needOf returns the layers that the parser must read to decide a rule.
func needOf(r *Rule) uint32 {
	need := needOfLevel(&r.Key.Out, &r.Mask.Out, r.Mask.words()[:levelWords])
	inner := r.Mask.words()[levelWords:]
	tunnel := r.Mask.Out.Flags & (FlagVXLAN | FlagGRE | FlagGREKey)
	number := r.Mask.Out.Tunnel != [4]byte{} && r.Key.Out.Flags&r.Mask.Out.Flags&FlagMPLS == 0 // of a tunnel
	if inside := anyWord(inner); inside || tunnel != 0 || number {
		if tunnel&FlagVXLAN != 0 || tunnel == 0 {
			need |= needVXLAN
		}
		if tunnel&^FlagVXLAN != 0 || tunnel == 0 {
			need |= needGRE
		}
		need |= needTags
		if inside {
			need |= (needLevel | needOfLevel(&r.Key.In, &r.Mask.In, inner)) << needInner
		}
		need |= ipNeed(&r.Key.Out, &r.Mask.Out)
	}
	return need
}

func needOfLevel(key, mask *Headers, w []uint64) uint32 {
	var need uint32
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
	if mask.L4 != [4]byte{} || mask.Flags&(FlagL4|FlagIncomplete) != 0 {
		need |= needL4 | ipNeed(key, mask)
	}
	if mask.TCPFlags != 0 || mask.Flags&(FlagTCPFlags|FlagIncomplete) != 0 {
		need |= needTCPFlags | needL4 | ipNeed(key, mask)
	}
	l4 := mask.L4 != [4]byte{} || mask.Flags&FlagL4 != 0
	if l4 && protoESP&mask.Proto == key.Proto || mask.Flags&FlagIncomplete != 0 {
		need |= needESP
	}
	const not = FlagIPv4 | FlagIPv6 | FlagVXLAN | FlagGRE // MPLS is not beside them
	entry := mask.Tunnel != [4]byte{} || mask.Flags&FlagIncomplete != 0
	if mask.Flags&FlagMPLS != 0 || entry && key.Flags&mask.Flags&not == 0 {
		need |= needMPLS
	}
	if mask.Proto != 0 || mask.Flags&(FlagFrag|FlagLater) != 0 || w[wordAddr] != 0 {
		need |= ipNeed(key, mask)
	}
	return need
}

// ipNeed: both versions, unless the rule asks for one.
func ipNeed(key, mask *Headers) uint32 {
	switch {
	case key.Flags&mask.Flags&FlagIPv4 != 0:
		return needIPv4
	case key.Flags&mask.Flags&FlagIPv6 != 0:
		return needIPv6
	}
	return needIPv4 | needIPv6
}

func anyWord(w []uint64) bool {
	for _, x := range w {
		if x != 0 {
			return true
		}
	}
	return false
}
