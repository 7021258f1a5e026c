package xdp

import "encoding/binary"

// packetOf returns the key of a packet that matches a rule. Flags are those of the rule, and all other free bits are random.
func packetOf(r *Rule, random func() uint64) (key Key) {
	k, m := r.Key.words(), r.Mask.words()
	w := key.words()
	for i := range w {
		w[i] = k[i] | random()&^m[i]
	}
	key.Out.Flags, key.In.Flags = r.Key.Out.Flags, r.Key.In.Flags
	for level, p := range r.Ports {
		h := []*Headers{&key.Out, &key.In}[level]
		for i, at := range []Range{p.Src, p.Dst} {
			if at != (Range{}) {
				binary.BigEndian.PutUint16(h.L4[2*i:], at.First+uint16(random()%(uint64(at.Last-at.First)+1)))
			}
		}
	}
	return key
}

// packetFor is packetOf for estimates: if the rule looks at a field of IP, the packet has an IP version.
func packetFor(r *Rule, random func() uint64) Key {
	key := packetOf(r, random)
	if c := classesOf(r); key.Out.Flags&(FlagIPv4|FlagIPv6) == 0 && c&(1<<classOther) == 0 {
		key.Out.Flags |= FlagIPv4
		if c&(1<<classIPv4) == 0 {
			key.Out.Flags ^= FlagIPv4 | FlagIPv6
		}
	}
	return key
}
