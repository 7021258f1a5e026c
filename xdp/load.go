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

// loader loads programs of the BPF object. Each has constants of its own, and all share the maps.
type loader struct {
	spec    *ebpf.CollectionSpec // nil: Options.Kernel loads no programs
	maps    *maps
	g       geometry
	secret  *secret
	sees    bool // seesContext
	inOrder bool // stores of one CPU become visible to others in their order

	// types are those of the kernel. To read them takes 30 ms, several times as long as a load.
	types *btf.Cache
}

func newLoader(m *maps, g geometry) (*loader, error) {
	l := &loader{
		maps:    m,
		g:       g,
		secret:  secretOf(metaOf(m.meta.words, g).secret),
		sees:    true,
		inOrder: inOrder,
	}
	if m.meta.hostMap() == nil {
		return l, nil
	}

	spec, err := loadFlowtally()
	if err != nil {
		return nil, fmt.Errorf("reading the BPF object: %w", err)
	}
	if err := fitSections(spec, m); err != nil {
		return nil, err
	}
	l.spec = spec
	l.sees = seesContext()
	l.types = btf.NewCache()
	return l, nil
}

// objectHash identifies the programs of this build: the object, and how constants are written into it. It is never 0. Versions
// before "shared" took each program for one with the number of its interface.
var objectHash = sync.OnceValue(func() uint64 {
	sum := sha256.Sum256(append([]byte("shared "), _FlowtallyBytes...))
	return binary.LittleEndian.Uint64(sum[:]) | 1
})

// fitSections gives the data sections of an object the size of the maps that stand in for them. It drops their types, which
// have the size of the object's placeholders.
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
	// The library cannot make variables of a section without a map, or of another size.
	for name, v := range spec.Variables {
		if v.SectionName == ".data.btf" || m.haveSection(v.SectionName) {
			delete(spec.Variables, name)
		}
	}
	return nil
}

// programName returns the name of the program in the object for the host's kernel.
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

// seesContext reports whether programs can read the kernel's structure behind their context, as they can from 6.2 on with BTF.
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

// load loads the program for a site.
func (l *loader) load(c constants, at site) (*ebpf.Program, error) {
	if l.spec == nil {
		return nil, nil // the methods Clone and Close of a nil program do nothing
	}
	return l.loadNamed(c, at, l.programName(at.tcx))
}

// loadNamed loads a program of the object by its name.
func (l *loader) loadNamed(c constants, at site, name string) (*ebpf.Program, error) {
	spec := l.spec.Copy()
	if err := spec.Variables[flowtallyVarFtConf].Set(l.config(c, at)); err != nil {
		return nil, fmt.Errorf("setting constants: %w", err)
	}
	p := spec.Programs[name]
	spec.Programs = map[string]*ebpf.ProgramSpec{name: p}
	switch {
	case at.tcx:
		p.AttachType = at.attachType()
	case at.generic:
		p.Flags &^= hasFrags
	case at.component:
		mould, err := dispatcher.Mould()
		if err != nil {
			return nil, err
		}
		defer mould.Close()
		p.Type = ebpf.Extension
		p.AttachType = ebpf.AttachNone
		p.AttachTarget = mould
		p.AttachTo = dispatcher.Place
		p.Flags = 0
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
