package dispatcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Slot is the link of a program in a dispatcher. It holds no descriptor of the program: libxdp's pins keep it, also over
// the end of this process. A component is the slot's if it uses the slot's map.
type Slot struct {
	link.Link // nil: the methods that a slot does not have
	hook      *Hook
	uses      ebpf.MapID
	at        ebpf.ProgramID // the dispatcher that had the component when it was last seen; 0: none
	pin       string         // of the component's link there, without which the component does not run
}

// first is the priority of a slot's program: in front, it sees each packet that the NIC gives to the kernel. libxdp's
// default is 50.
const first = 0

// NewSlot returns the slot of the programs that use a map, in the dispatcher of an interface in the network namespace of the
// calling thread. grace waits for an RCU grace period. The slot is empty until Update, or was filled by an earlier process.
func NewSlot(ifindex int, uses *ebpf.Map, grace func() error) (*Slot, error) {
	info, err := uses.Info()
	if err != nil {
		return nil, fmt.Errorf("asking for the map of a slot: %w", err)
	}
	h, err := NewHook(ifindex, grace)
	if err != nil {
		return nil, err
	}
	id, _ := info.ID()
	return &Slot{hook: h, uses: id}, nil
}

func (s *Slot) fills(p *ebpf.Program) (bool, error) {
	info, err := p.Info()
	if err != nil {
		return false, fmt.Errorf("asking for a program of the dispatcher: %w", err)
	}
	ids, _ := info.MapIDs()
	return slices.Contains(ids, s.uses), nil
}

func (s *Slot) others(members []Member) (others []Member, err error) {
	for _, m := range members {
		ours, err := s.fills(m.Program)
		if err != nil {
			return nil, err
		}
		if !ours {
			others = append(others, m)
		}
	}
	return others, nil
}

// Filled reports whether the program is in the dispatcher that holds the hook. libxdp takes it along into another
// dispatcher. After an error the program may be there, and count.
func (s *Slot) Filled() (bool, error) {
	if id, _, err := s.hook.attached(); err == nil && id == s.at && (id == 0 || exists(s.pin)) {
		return id != 0, nil
	}
	s.at = 0
	err := s.hook.look(func(d *dispatcher) error {
		for i, m := range d.members {
			ours, err := s.fills(m.Program)
			if err != nil {
				return err
			}
			if pin := filepath.Join(s.hook.dir(d.id), place(i)+"-link"); ours && exists(pin) {
				s.at, s.pin = d.id, pin
			}
		}
		return nil
	})
	return err == nil && s.at != 0, err
}

func exists(pin string) bool {
	_, err := os.Lstat(pin)
	return err == nil
}

// Update implements link.Link: the program, which was loaded for a mould, takes the place of the slot's program.
func (s *Slot) Update(p *ebpf.Program) error {
	info, err := p.Info()
	if err != nil {
		return fmt.Errorf("asking for the program of a slot: %w", err)
	}
	s.at = 0
	_, err = s.hook.Change(func(members []Member) ([]Member, error) {
		others, err := s.others(members)
		return append(others, Member{Program: p, Name: info.Name, Priority: first, Actions: 1 << verdictPass, Frags: true}), err
	})
	return err
}

// Detach implements link.Link.
func (s *Slot) Detach() error {
	if _, _, err := s.hook.attached(); errors.Is(err, syscall.ENODEV) {
		return locked(s.leave)
	}
	if filled, err := s.Filled(); err != nil || !filled {
		return err
	}
	_, err := s.hook.Change(s.others)
	if errors.Is(err, ErrNone) {
		err = nil
	}
	if err == nil {
		s.at = 0
	}
	return err
}

// leave empties the slot where the namespace has no such interface. It was deleted, or moved to another namespace, where
// the dispatcher runs on. The caller holds the lock of the pins.
func (s *Slot) leave() error {
	_, err := leave(fmt.Sprintf("dispatch-%d-*", s.hook.ifindex), s.fills)
	s.at = 0
	return err
}

// leave empties the places of programs of ours in the dispatchers whose pins match. The pin of a link keeps a component
// in its place, so its removal is all that it takes: no dispatcher is loaded.
func leave(dispatchers string, fills func(*ebpf.Program) (bool, error)) (emptied int, err error) {
	pins, _ := filepath.Glob(filepath.Join(Dir, dispatchers, "prog*-prog"))
	var errs []error
	for _, pin := range pins {
		p, err := ebpf.LoadPinnedProgram(pin, nil)
		if err == nil {
			ours := false
			if ours, err = fills(p); ours {
				if err = empty(strings.TrimSuffix(pin, "prog") + "link"); err == nil {
					emptied++
				}
			}
			p.Close()
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("emptying a place of the dispatcher %s: %w", filepath.Base(filepath.Dir(pin)), err))
		}
	}
	return emptied, errors.Join(errs...)
}

// empty removes the pin of a component's link. The kernel frees the last pin of a link later, by a work item, and packets
// pass the component meanwhile. It detaches at once where a process closes the link last (bpf_link_put_direct,
// kernel/bpf/syscall.c).
func empty(pin string) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return os.Remove(pin) // late is better than never
	}
	return errors.Join(os.Remove(pin), l.Close())
}

// LeaveAll empties the places of all programs that use a map, in the dispatchers of all interfaces and namespaces. It
// does not wait for a process that holds the lock of the pins and hangs: to remove a pin needs no lock.
func LeaveAll(uses *ebpf.Map) (emptied int, err error) {
	info, err := uses.Info()
	if err != nil {
		return 0, fmt.Errorf("asking for the map of a slot: %w", err)
	}
	id, _ := info.ID()
	s := &Slot{uses: id}
	return leave("dispatch-*-*", s.fills)
}

// Close implements link.Link. The program stays.
func (s *Slot) Close() error { return s.hook.Close() }

// Pin implements link.Link: libxdp's pins are there.
func (s *Slot) Pin(string) error { return nil }

// Unpin implements link.Link.
func (s *Slot) Unpin() error { return nil }

// Before calls f with each component that runs before the slot's program.
func (s *Slot) Before(f func(name string, id ebpf.ProgramID)) error {
	return s.hook.look(func(d *dispatcher) error {
		for _, m := range d.members {
			if ours, err := s.fills(m.Program); ours || err != nil {
				return err
			}
			if info, err := m.Program.Info(); err == nil {
				id, _ := info.ID()
				f(m.Name, id)
			}
		}
		return nil
	})
}

// Holds reports whether a dispatcher holds the XDP hook of an interface, as far as this process may look.
func Holds(ifindex int) bool {
	h, err := NewHook(ifindex, nil)
	if err != nil {
		return false
	}
	defer h.Close()
	id, _, err := h.attached()
	if err != nil || id == 0 {
		return false
	}
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return false
	}
	defer p.Close()
	_, err = configured(p)
	return !errors.Is(err, ErrNone)
}
