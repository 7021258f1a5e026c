package xdp

import "encoding/binary"

// constants are the part of a program's configuration that depends on the rules. All programs of a load share them.
type constants struct {
	need   uint64             // the union of needOf over all rules, and needTree
	tuples []flowtallyFtTuple // in the order in which programs search them
}

// config returns the configuration of the program for a site. The verifier removes the code it excludes.
func (l *loader) config(c constants, at site) flowtallyFtConfig {
	conf := flowtallyFtConfig{
		Need:        c.need & needLayers,
		Classes:     uint32(c.need >> needClass & 7),
		Tuples:      uint32(len(c.tuples)),
		Port:        uint32(at.port),
		SlotMask:    uint32(l.g.slots - 1),
		Mul:         l.secret.mul,
		Fold:        l.secret.fold,
		EntryMask:   uint32(l.g.units-1) * unitWords * 8,
		RankBase:    uint32(rankAt(l.g.units)) * 8,
		CounterMask: uint32(l.g.counters-1) * 16,
		Cpus:        uint32(l.g.cpus),
		CpuBlock:    uint64(l.g.block),
		Marks:       uint64(l.g.marksAt()),
	}
	for i, t := range c.tuples {
		conf.Tuple[i] = t
	}
	if at.layer3 {
		conf.Layer3 = 1
	}
	if l.inOrder {
		conf.InOrder = 1
	}

	// The first word of an ordinary packet's key. Programs only add its ports and protocol.
	var v4, v6 Key
	v4.Out.Flags = FlagEth | FlagIPv4 | FlagL4
	v6.Out.Flags = FlagEth | FlagIPv6 | FlagL4
	if at.hook == HookEgress {
		conf.Egress = uint32(FlagEgress)
		v4.Out.Flags |= FlagEgress
		v6.Out.Flags |= FlagEgress
	}
	conf.Hot4 = v4.words()[wordHot]
	conf.Hot6 = v6.words()[wordHot]

	// Simple sets of rules get shorter code.
	if c.need&needLayers&^(needIPv4|needL4) == 0 {
		conf.Plain = 1
	}
	if c.need&needTree != 0 {
		conf.TreeMask = uint32(l.g.words - 1)
	}
	conf.One = oneRule(conf, c.tuples)
	conf.Pair = l.sets.pairConstants()
	return conf
}

// oneRule returns the only rule as a common frame of IPv4 has its fields: struct ft_one_rule of bpf/config.h. It returns the zero
// value if there are more rules, or if the rule looks at other fields.
func oneRule(conf flowtallyFtConfig, tuples []flowtallyFtTuple) flowtallyFtOneRule {
	if conf.TreeMask != 0 || conf.Plain == 0 || conf.Layer3 != 0 || len(tuples) != 1 {
		return flowtallyFtOneRule{}
	}
	t := &tuples[0]
	if t.Flags&tupleSingle == 0 || t.Words&^(1<<wordHot|1<<wordAddr) != 0 {
		return flowtallyFtOneRule{}
	}

	var k, m, frame Key
	*m.words() = t.Mask
	*k.words() = t.Key
	frame.words()[wordHot] = conf.Hot4 // of TCP and UDP
	mask, key := m.Out, k.Out

	// Only TCP and UDP have ports and FlagL4 here. A rule that looks at either must name one of the two.
	ports := mask.L4 != [4]byte{} || mask.Flags&FlagL4 != 0
	ported := mask.Proto == 0xff && (key.Proto == protoTCP || key.Proto == protoUDP)
	if ports && !ported || mask.TCPFlags != 0 || frame.Out.Flags&mask.Flags != key.Flags {
		return flowtallyFtOneRule{}
	}

	return flowtallyFtOneRule{
		ProtoMask: int32(binary.NativeEndian.Uint32([]byte{0x3f, 0xff, 0, mask.Proto})), // 0x3fff: a fragment
		Proto:     binary.NativeEndian.Uint32([]byte{0, 0, 0, key.Proto}),
		PortsMask: int32(binary.NativeEndian.Uint32(mask.L4[:])),
		Ports:     binary.NativeEndian.Uint32(key.L4[:]),
		SrcMask:   int32(binary.NativeEndian.Uint32(mask.Addr[:4])),
		Src:       binary.NativeEndian.Uint32(key.Addr[:4]),
		DstMask:   int32(binary.NativeEndian.Uint32(mask.Addr[4:8])),
		Dst:       binary.NativeEndian.Uint32(key.Addr[4:8]),
	}
}
