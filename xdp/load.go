package xdp

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/flowtally/flowtally/xdp/dispatcher"
)

// loader makes programs of the object, each with its own constants, all on the same maps.
type loader struct {
	spec   *ebpf.CollectionSpec // nil: the kernel is of Options.Kernel, and loads none
	maps   *maps
	g      geometry
	secret *secret
	sees   bool // programs see behind their context
	// inOrder says that stores of one CPU become visible to others in their order.
	inOrder bool
	// types of the kernel: to read them takes 30 ms, several times as long as a load.
	types *btf.Cache
}

func newLoader(m *maps, g geometry) (*loader, error) {
	if m.meta.hostMap() == nil {
		return &loader{maps: m, g: g, secret: secretOf(metaOf(m.meta.words, g).secret), sees: true, inOrder: inOrder}, nil
	}
	spec, err := loadFlowtally()
	if err != nil {
		return nil, fmt.Errorf("reading the BPF object: %w", err)
	}
	if err := fitSections(spec, m); err != nil {
		return nil, err
	}
	return &loader{spec: spec, maps: m, g: g, secret: secretOf(metaOf(m.meta.words, g).secret), sees: seesContext(), inOrder: inOrder, types: btf.NewCache()}, nil
}

// objectHash names the object that this process loads programs from, and what it writes into them; never 0. Versions before
// "shared" took each program for one with the number of its interface.
var objectHash = sync.OnceValue(func() uint64 {
	sum := sha256.Sum256(append([]byte("shared "), _FlowtallyBytes...))
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

func (l *loader) programName(tcx bool) string {
	switch {
	case tcx && l.sees:
		return flowtallyProgFlowtallyTcx
	case tcx:
		return flowtallyProgFlowtallyTcxNobtf
	case l.sees:
		return flowtallyProgFlowtallyXdp
	}
	return flowtallyProgFlowtallyXdp61
}

// seesContext says whether programs see behind their context, as they do from 6.2 on with BTF.
var seesContext = sync.OnceValue(func() bool {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return false
	}
	var f *btf.Func
	return spec.TypeByName("bpf_cast_to_kern_ctx", &f) == nil
})

// hasFrags is BPF_F_XDP_HAS_FRAGS. x/sys has it on Linux only.
const hasFrags = 1 << 5

// load verifies one program.
func (l *loader) load(c constants, at site) (*ebpf.Program, error) {
	if l.spec == nil {
		return nil, nil // the methods Clone and Close of a nil program do nothing
	}
	return l.named(c, at, l.programName(at.tcx))
}

func (l *loader) named(c constants, at site, name string) (*ebpf.Program, error) {
	spec := l.spec.Copy()
	if err := spec.Variables[flowtallyVarFtConf].Set(l.config(c, at)); err != nil {
		return nil, fmt.Errorf("setting constants: %w", err)
	}
	for n := range spec.Programs {
		if n != name {
			delete(spec.Programs, n)
		}
	}
	if at.tcx {
		spec.Programs[name].AttachType = at.attachType()
	}
	if at.generic {
		spec.Programs[name].Flags &^= hasFrags
	}
	if at.component {
		mould, err := dispatcher.Mould()
		if err != nil {
			return nil, err
		}
		defer mould.Close()
		p := spec.Programs[name]
		p.Type, p.AttachType, p.AttachTarget, p.AttachTo, p.Flags = ebpf.Extension, ebpf.AttachNone, mould, dispatcher.Place, 0
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: l.maps.replacements(), Cache: l.types})
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
