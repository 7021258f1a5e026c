package xdp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/kernel"
)

// maps are the kernel memory of a rule set, each one value, mapped. All but
// the meta map stand in for a data section of the object.
type maps struct {
	all                                                 []*sharedMap
	counters, slots, entries, ranks, tree, ledger, meta *sharedMap
}

type sharedMap struct {
	name    string
	section string // "" for the meta map
	frozen  bool
	m       kernel.Map // of the kernel of the host: an *ebpf.Map in a hostMap
	mem     []byte
	words   []uint64
}

const mmapable = 1 << 10 // BPF_F_MMAPABLE, which x/sys has for Linux alone

func newMaps() *maps {
	s := &maps{
		counters: &sharedMap{name: "counters", section: ".data.counters", frozen: true},
		slots:    &sharedMap{name: "slots", section: ".data.slots"},
		entries:  &sharedMap{name: "entries", section: ".data.entries"},
		ranks:    &sharedMap{name: "ranks", section: ".data.ranks"},
		tree:     &sharedMap{name: "tree", section: ".data.tree"},
		ledger:   &sharedMap{name: "ledger"},
		meta:     &sharedMap{name: "meta"},
	}
	// The meta map is pinned last: where it is, all are.
	s.all = []*sharedMap{s.counters, s.slots, s.entries, s.ranks, s.tree, s.ledger, s.meta}
	return s
}

func (s *maps) sizes(g geometry) []int {
	return []int{g.counterBytes() + epochBytes(), g.slotBytes(), g.entryBytes(), pages(g.rankBytes()), g.treeBytes(), ledgerBytes(), metaBytes(g)}
}

// create makes and maps all maps.
func (s *maps) create(g geometry, k kernel.Kernel) error {
	for i, size := range s.sizes(g) {
		m, err := newMap(k, "ft_"+s.all[i].name, size)
		if err != nil {
			return fmt.Errorf("creating map %s of %d bytes: %w", s.all[i].name, size, explain(err))
		}
		s.all[i].m = m
		if err := s.all[i].mmap(); err != nil {
			return err
		}
	}
	return nil
}

// hostMap is a map of the kernel of the host. sharedMap maps its value.
type hostMap struct{ *ebpf.Map }

// Memory implements kernel.Map.
func (hostMap) Memory() []byte { return nil }

// hostMap returns the map of the kernel of the host, or nil.
func (m *sharedMap) hostMap() *ebpf.Map {
	h, _ := m.m.(hostMap)
	return h.Map
}

func newMap(k kernel.Kernel, name string, size int) (kernel.Map, error) {
	if k != nil {
		return k.NewMap(name, size)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: name, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(size), MaxEntries: 1, Flags: mmapable})
	return hostMap{m}, err
}

func openMap(k kernel.Kernel, path string) (kernel.Map, error) {
	if k != nil {
		return k.OpenMap(path)
	}
	m, err := ebpf.LoadPinnedMap(path, nil)
	return hostMap{m}, err
}

// mmap maps the value. The counters are frozen before: no process can write
// them by system call or mapping from then on, this one included.
func (m *sharedMap) mmap() error {
	host := m.hostMap()
	if host == nil {
		m.words = wordsOf(m.m.Memory())
		return nil
	}
	prot := unix.PROT_READ | unix.PROT_WRITE
	if m.frozen {
		if err := m.freeze(); err != nil {
			return err
		}
		prot = unix.PROT_READ
	}
	mem, err := unix.Mmap(host.FD(), 0, pages(int(host.ValueSize())), prot, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mapping map %s: %w", m.name, err)
	}
	m.mem, m.words = mem, wordsOf(mem)
	return nil
}

// freeze is not repeated on a map that was adopted: the kernel returns EPERM.
func (m *sharedMap) freeze() error {
	host := m.hostMap()
	info, err := host.Info()
	if err != nil {
		return fmt.Errorf("asking map %s: %w", m.name, err)
	}
	if info.Frozen() {
		return nil
	}
	if err := host.Freeze(); err != nil {
		return fmt.Errorf("freezing map %s: %w", m.name, explain(err))
	}
	return nil
}

// pin makes the maps outlive the process.
func (s *maps) pin(dir string) error {
	for _, m := range s.all {
		if err := m.m.Pin(filepath.Join(dir, m.name)); err != nil {
			return fmt.Errorf("pinning map %s in %s: %w", m.name, dir, err)
		}
	}
	return nil
}

// adopt opens the pins of a process that is gone. os.ErrNotExist and errUnfinished say that there is nothing to adopt.
func (s *maps) adopt(dir string, k kernel.Kernel) (geometry, error) {
	var g geometry
	for i := len(s.all) - 1; i >= 0; i-- {
		m := s.all[i]
		path := filepath.Join(dir, m.name)
		pinned, err := openMap(k, path)
		if errors.Is(err, os.ErrNotExist) && m == s.ledger { // layout 10 had none: see addLedger
			continue
		}
		if err != nil {
			if errors.Is(err, os.ErrNotExist) && m != s.meta {
				err = fmt.Errorf("%w: %w", ErrIncompatible, err)
			}
			return g, fmt.Errorf("opening pinned map %s: %w", path, explain(err))
		}
		m.m = pinned
		if pinned.Type() != ebpf.Array || pinned.MaxEntries() != 1 || pinned.ValueSize() < 8*metaHeader {
			return g, fmt.Errorf("opening pinned map %s: %w: not a map of flowtally", path, ErrIncompatible)
		}
		if m == s.meta {
			if err := m.mmap(); err != nil {
				return g, err
			}
			if g, err = geometryOf(m.words); err != nil {
				return g, fmt.Errorf("reading pinned map %s: %w", path, err)
			}
		}
		if want := s.sizes(g)[i]; int(pinned.ValueSize()) != want {
			return g, fmt.Errorf("opening pinned map %s: %w: %d bytes, not %d", path, ErrIncompatible, pinned.ValueSize(), want)
		}
		if m != s.meta {
			if err := m.mmap(); err != nil {
				return g, err
			}
		}
	}
	return g, nil
}

// addLedger makes an empty ledger beside pins without one.
func (s *maps) addLedger(dir string, k kernel.Kernel) error {
	var err error
	if s.ledger.m, err = newMap(k, "ft_ledger", ledgerBytes()); err != nil {
		return fmt.Errorf("creating map ledger: %w", explain(err))
	}
	if err := s.ledger.m.Pin(filepath.Join(dir, s.ledger.name)); err != nil {
		return fmt.Errorf("pinning map ledger in %s: %w", dir, explain(err))
	}
	return s.ledger.mmap()
}

func (m *sharedMap) unmap() error {
	var err error
	if m.mem != nil {
		err = unix.Munmap(m.mem)
	}
	m.mem, m.words = nil, nil
	return err
}

// close unmaps and closes; pins stay.
func (s *maps) close() error {
	var errs []error
	for _, m := range s.all {
		errs = append(errs, m.unmap())
		if m.m != nil {
			errs = append(errs, m.m.Close())
			m.m = nil
		}
	}
	return errors.Join(errs...)
}

// replacements stand in for the sections of the object.
func (s *maps) replacements() map[string]*ebpf.Map {
	r := map[string]*ebpf.Map{}
	for _, m := range s.all {
		if m.section != "" {
			r[m.section] = m.hostMap()
		}
	}
	return r
}

// stands says whether a map stands in for a section.
func (s *maps) stands(section string) bool {
	for _, m := range s.all {
		if m.section == section {
			return true
		}
	}
	return false
}
