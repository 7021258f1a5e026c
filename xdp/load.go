package xdp

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
)

// loader makes programs of the object, each with its own constants, all on the same maps.
type loader struct {
	spec *ebpf.CollectionSpec
	maps *maps
	g    geometry
}

func newLoader(m *maps, g geometry) (*loader, error) {
	spec, err := loadFlowtally()
	if err != nil {
		return nil, fmt.Errorf("reading the BPF object: %w", err)
	}
	if err := fitSections(spec, m); err != nil {
		return nil, err
	}
	return &loader{spec: spec, maps: m, g: g}, nil
}

// objectHash names the object that this process loads programs from; never 0.
var objectHash = sync.OnceValue(func() uint64 {
	sum := sha256.Sum256(_FlowtallyBytes)
	return binary.LittleEndian.Uint64(sum[:]) | 1
})

// fitSections gives the data sections the size of the maps that stand in for
// them. Their type says the size of the object's placeholder, so it is dropped.
func fitSections(spec *ebpf.CollectionSpec, m *maps) error {
	for _, s := range m.all {
		if s.section == "" {
			continue
		}
		ms := spec.Maps[s.section]
		if ms == nil {
			return fmt.Errorf("reading the BPF object: no section %s", s.section)
		}
		ms.ValueSize, ms.Flags, ms.Contents = s.m.ValueSize(), mmapable, nil
		ms.Key, ms.Value = nil, nil
	}
	delete(spec.Maps, ".data.btf")
	// Variables of sections without a map, or of the old size, cannot be made.
	for name, v := range spec.Variables {
		if v.SectionName == ".data.btf" || m.stands(v.SectionName) {
			delete(spec.Variables, name)
		}
	}
	return nil
}

// config is what a program for one hook of one interface is specialised by.
func (l *loader) config(c constants, h Hook, port uint16) flowtallyFtConfig {
	conf := flowtallyFtConfig{
		Need:        c.need,
		Tuples:      uint32(len(c.tuples)),
		Port:        uint32(port),
		SlotMask:    uint32(l.g.slots - 1),
		EntryMask:   uint32(l.g.units-1) * unitWords * 8,
		CounterMask: uint32(l.g.counters-1) * 16,
		Cpus:        uint32(l.g.cpus),
		CpuBlock:    uint64(l.g.block),
	}
	var v4, v6 Key
	v4.Out.Flags = FlagEth | FlagIPv4 | FlagL4
	v6.Out.Flags = FlagEth | FlagIPv6 | FlagL4
	if h == HookEgress {
		conf.Egress = uint32(FlagEgress)
		v4.Out.Flags |= FlagEgress
		v6.Out.Flags |= FlagEgress
	}
	conf.Hot4, conf.Hot6 = v4.words()[wordHot], v6.words()[wordHot]
	for i, t := range c.tuples {
		conf.Tuple[i] = t
	}
	return conf
}

var programNames = map[Hook]string{HookIngress: flowtallyProgFlowtallyXdp, HookEgress: flowtallyProgFlowtallyTcx}

// load verifies one program.
func (l *loader) load(c constants, h Hook, port uint16) (*ebpf.Program, error) {
	spec := l.spec.Copy()
	if err := spec.Variables[flowtallyVarFtConf].Set(l.config(c, h, port)); err != nil {
		return nil, fmt.Errorf("setting constants: %w", err)
	}
	name := programNames[h]
	for n := range spec.Programs {
		if n != name {
			delete(spec.Programs, n)
		}
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: l.maps.replacements()})
	if err != nil {
		var ve *ebpf.VerifierError
		if errors.As(err, &ve) {
			return nil, fmt.Errorf("loading program %s: %w", name, ve)
		}
		return nil, fmt.Errorf("loading program %s: %w", name, explain(err))
	}
	defer coll.Close()
	return coll.DetachProgram(name), nil
}
