package xdp

// constants are the part of a program's configuration that depends on the rules. All programs of a load share them.
type constants struct {
	need   uint32             // the union of needOf over all rules, and needTree
	tuples []flowtallyFtTuple // in the order in which programs search them
}

// config returns the configuration of the program for a site. The verifier removes the code it excludes.
func (l *loader) config(c constants, at site) flowtallyFtConfig {
	conf := flowtallyFtConfig{
		Need:        c.need & needLayers,
		Classes:     c.need >> needClass & 7,
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
	if conf.TreeMask == 0 && len(c.tuples) == 1 && c.tuples[0].Words == 1<<wordHot|1<<wordAddr {
		conf.Shape = shapeExact
		if c.tuples[0].Flags&tupleSingle != 0 {
			conf.Shape = shapeOne
		}
	}
	return conf
}

// Shapes are sets of rules with code of their own: enum ft_shape of bpf/config.h.
const (
	shapeOne   = 1
	shapeExact = 2
)
