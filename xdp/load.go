package xdp

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/flowtally/flowtally/xdp/dispatcher"
	"github.com/flowtally/flowtally/xdp/fold"
	"github.com/flowtally/flowtally/xdp/members"
)

// loader loads the programs of the BPF object. All programs share the maps, and differ in their constants.
type loader struct {
	spec    *ebpf.CollectionSpec // nil under Options.Kernel, which loads no programs
	maps    *maps
	sets    *sets
	g       geometry
	secret  *secret
	sees    bool // see seesContext
	inOrder bool // other CPUs see the stores of one CPU in order

	// types caches the BTF of the kernel. Reading it takes 30 ms, several times as long as a load.
	types *btf.Cache
}

func newLoader(m *maps, g geometry, sets *sets) (*loader, error) {
	l := &loader{
		maps:    m,
		sets:    sets,
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

// objectHash identifies the programs of this build: the object, and the way it gets its constants. It is never 0. The words stand
// for that way. Versions before "shared" expected the number of the interface in every program. The programs of versions before
// "folded" load their constants.
var objectHash = sync.OnceValue(func() uint64 {
	sum := sha256.Sum256(append([]byte("shared folded "), _FlowtallyBytes...))
	return binary.LittleEndian.Uint64(sum[:]) | 1
})

// fitSections prepares the data sections of an object for being replaced by our maps. It sets their sizes, and drops their types,
// which describe the small placeholders of the object.
func fitSections(spec *ebpf.CollectionSpec, m *maps) error {
	for _, s := range m.all {
		if s.section == "" {
			continue
		}
		ms := spec.Maps[s.section]
		if ms == nil {
			return fmt.Errorf("reading the BPF object: no section %s", s.section)
		}
		fitSection(ms, s)
	}
	delete(spec.Maps, ".data.btf")
	// The library refuses variables in a section without a map, or in one of another size.
	for name, v := range spec.Variables {
		if v.SectionName == ".data.btf" || v.SectionName == membersSection || m.haveSection(v.SectionName) {
			delete(spec.Variables, name)
		}
	}
	return nil
}

// fitSection prepares a section for being replaced by one of our maps.
func fitSection(section *ebpf.MapSpec, m *sharedMap) {
	section.ValueSize, section.Flags, section.Contents = m.m.ValueSize(), mmapable, nil
	section.Key, section.Value = nil, nil
}

// programName returns the name of the object's program for these rules and this kernel.
func (l *loader) programName(c constants, at site) string {
	asking := func(without, with string) string {
		if c.need&needSets != 0 {
			return with
		}
		return without
	}
	switch {
	case at.tcx && l.sees:
		return asking(flowtallyProgFlowtallyTcx, flowtallyProgFlowtallyTcxSets)
	case at.tcx:
		return asking(flowtallyProgFlowtallyTcxNobtf, flowtallyProgFlowtallyTcxNobtfSets)
	case l.sees && l.config(c, at).One != (flowtallyFtOneRule{}):
		return flowtallyProgFlowtallyXdpOne
	case l.sees:
		return asking(flowtallyProgFlowtallyXdp, flowtallyProgFlowtallyXdpSets)
	}
	return asking(flowtallyProgFlowtallyXdp61, flowtallyProgFlowtallyXdp61Sets)
}

// seesContext reports whether programs can read the kernel structure behind their context. That needs Linux 6.2 and BTF.
var seesContext = sync.OnceValue(func() bool {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return false
	}
	var f *btf.Func
	return spec.TypeByName("bpf_cast_to_kern_ctx", &f) == nil
})

// hasFrags is BPF_F_XDP_HAS_FRAGS, which x/sys defines on Linux only.
const hasFrags = 1 << 5

// load loads the program for a site.
func (l *loader) load(c constants, at site) (*ebpf.Program, error) {
	if l.spec == nil {
		return nil, nil // Clone and Close of a nil program do nothing
	}
	return l.loadNamed(c, at, l.programName(c, at))
}

// setConstants gives an object its constants, and folds them into its programs. It returns the maps for the sections of the object.
func (l *loader) setConstants(spec *ebpf.CollectionSpec, c flowtallyFtConfig) (map[string]*ebpf.Map, error) {
	if err := foldConstant(spec, flowtallyVarFtConf, c); err != nil {
		return nil, err
	}
	replacements := l.maps.replacements()
	if c.Need&needSets == 0 { // folding has left out all code that reads them
		delete(spec.Maps, membersSection)
		return replacements, nil
	}

	section := spec.Maps[membersSection]
	if section == nil {
		return nil, fmt.Errorf("setting constants: %w: the object asks no sets", ErrIncompatible)
	}
	memory := l.sets.memory
	for name, value := range map[string]any{
		flowtallyVarFtSets:        l.sets.constants(),
		flowtallyVarFtMembersLast: members.Last(len(memory.words)),
	} {
		if err := foldConstant(spec, name, value); err != nil {
			return nil, err
		}
	}
	fitSection(section, memory)
	replacements[membersSection] = memory.hostMap()
	return replacements, nil
}

// foldConstant gives a variable its value, and folds it into all programs of an object.
func foldConstant(spec *ebpf.CollectionSpec, variable string, value any) error {
	v := spec.Variables[variable]
	if v == nil {
		return fmt.Errorf("setting constants: %w: the object has no variable %s", ErrIncompatible, variable)
	}
	if err := v.Set(value); err != nil {
		return fmt.Errorf("setting constants: %w", err)
	}
	for name, p := range spec.Programs {
		insns, err := fold.Program(p.Instructions, v)
		if err != nil {
			return fmt.Errorf("setting the constants of program %s: %w", name, err)
		}
		p.Instructions = insns
	}
	return nil
}

// commonName returns the name by which people and other instances know a program of the object.
func commonName(program string) string {
	if program == flowtallyProgFlowtallyXdpOne {
		return flowtallyProgFlowtallyXdp
	}
	return strings.TrimSuffix(program, "_sets")
}

// loadNamed loads a program of the object by its name.
func (l *loader) loadNamed(c constants, at site, name string) (*ebpf.Program, error) {
	one := *l.spec
	one.Programs = map[string]*ebpf.ProgramSpec{name: l.spec.Programs[name]}
	spec := one.Copy()
	p := spec.Programs[name]
	p.Name = commonName(name)
	replacements, err := l.setConstants(spec, l.config(c, at))
	if err != nil {
		return nil, err
	}
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

	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replacements, Cache: l.types})
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
