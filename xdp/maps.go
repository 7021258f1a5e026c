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

// maps are the kernel memory of a datapath. Each map is an array with a single value, mapped into this process.
type maps struct {
	// Programs read and write these maps. They replace data sections of the object.
	counters *sharedMap
	slots    *sharedMap
	entries  *sharedMap
	ranks    *sharedMap
	tree     *sharedMap

	// These are for user space alone.
	ledger *sharedMap
	meta   *sharedMap

	all []*sharedMap // in the order in which they are pinned
}

// sharedMap is a map and its mapped value.
type sharedMap struct {
	name    string     // of its pin
	section string     // of the object; "" if no program reads the map
	frozen  bool       // read-only for user space, for good
	m       kernel.Map // a hostMap, unless Options.Kernel is set
	mem     []byte     // the mapping, for munmap
	words   []uint64   // the mapped value
}

const mmapable = 1 << 10 // BPF_F_MMAPABLE, which x/sys defines on Linux only

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
	// The meta map is pinned last, so if its pin exists, all do.
	s.all = []*sharedMap{s.counters, s.slots, s.entries, s.ranks, s.tree, s.ledger, s.meta}
	return s
}

// sizes returns the size of each map in all, in bytes.
func (s *maps) sizes(g geometry) []int {
	return []int{
		g.counterBytes() + epochBytes(),
		g.slotBytes(),
		g.entryBytes(),
		pages(g.rankBytes()),
		g.treeBytes(),
		ledgerBytes(),
		metaBytes(g),
	}
}

// create makes all maps, and maps them into this process.
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

// hostMap is a map in the kernel of the host.
type hostMap struct{ *ebpf.Map }

// Memory implements kernel.Map. It returns nil, because sharedMap.mmap maps the value itself.
func (hostMap) Memory() []byte { return nil }

// hostMap returns the map in the kernel of the host, or nil under Options.Kernel.
func (m *sharedMap) hostMap() *ebpf.Map {
	h, _ := m.m.(hostMap)
	return h.Map
}

// newMap makes an array with a single value.
func newMap(k kernel.Kernel, name string, size int) (kernel.Map, error) {
	if k != nil {
		return k.NewMap(name, size)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name:       name,
		Type:       ebpf.Array,
		KeySize:    4,
		ValueSize:  uint32(size),
		MaxEntries: 1,
		Flags:      mmapable,
	})
	return hostMap{m}, err
}

func openMap(k kernel.Kernel, path string) (kernel.Map, error) {
	if k != nil {
		return k.OpenMap(path)
	}
	m, err := ebpf.LoadPinnedMap(path, nil)
	return hostMap{m}, err
}

// mmap maps the value into this process. A frozen map is frozen first. From then on no process, not even this one, can write it by
// a system call or a mapping.
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

// freeze freezes the map, unless an earlier process has. The kernel would refuse a second time with EPERM.
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

// pin pins all maps.
func (s *maps) pin(dir string) error {
	for _, m := range s.all {
		if err := m.m.Pin(filepath.Join(dir, m.name)); err != nil {
			return fmt.Errorf("pinning map %s in %s: %w", m.name, dir, err)
		}
	}
	return nil
}

// adopt opens and maps the pins of an earlier process. It begins with the meta map, which has the sizes of the others. There is
// nothing to adopt if the error is errUnfinished, or os.ErrNotExist without ErrIncompatible.
func (s *maps) adopt(dir string, k kernel.Kernel) (geometry, error) {
	var g geometry
	for i := len(s.all) - 1; i >= 0; i-- {
		m := s.all[i]
		path := filepath.Join(dir, m.name)
		pinned, err := openMap(k, path)
		if errors.Is(err, os.ErrNotExist) && m == s.ledger { // layout 10 had no ledger, and addLedger will make one
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

// close unmaps the values and closes the maps. Pins stay.
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

// replacements returns the maps that replace sections of the object, by section.
func (s *maps) replacements() map[string]*ebpf.Map {
	r := map[string]*ebpf.Map{}
	for _, m := range s.all {
		if m.section != "" {
			r[m.section] = m.hostMap()
		}
	}
	return r
}

// haveSection reports whether a map replaces a section.
func (s *maps) haveSection(section string) bool {
	for _, m := range s.all {
		if m.section == section {
			return true
		}
	}
	return false
}
