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

// Link is the link of a component: of a program of ours in the dispatcher of an interface. It implements link.Link.
//
// It holds no descriptor of the program. libxdp's pins keep the component, also when this process ends. A component is ours
// if its program uses the map of NewLink.
type Link struct {
	link.Link // nil: the methods that this link does not have
	hook      *Hook
	uses      ebpf.MapID

	// Where the component was when it was last seen.
	id  ebpf.ProgramID // of the dispatcher; 0: nowhere
	pin string         // of the component's own link there, without which it does not run
}

// first is the priority of our component: it runs before the others, and sees each packet that the NIC gives to the kernel.
// libxdp's default is 50.
const first = 0

// NewLink returns the link of the component that uses a map, in the dispatcher of an interface in the network namespace of
// the calling thread. grace waits for an RCU grace period. Update attaches a component; an earlier process may have left one.
func NewLink(ifindex int, uses *ebpf.Map, grace func() error) (*Link, error) {
	info, err := uses.Info()
	if err != nil {
		return nil, fmt.Errorf("asking for the map of a slot: %w", err)
	}
	h, err := NewHook(ifindex, grace)
	if err != nil {
		return nil, err
	}
	id, _ := info.ID()
	return &Link{hook: h, uses: id}, nil
}

// isOurs reports whether a program uses the map.
func (l *Link) isOurs(p *ebpf.Program) (bool, error) {
	info, err := p.Info()
	if err != nil {
		return false, fmt.Errorf("asking for a program of the dispatcher: %w", err)
	}
	ids, _ := info.MapIDs()
	return slices.Contains(ids, l.uses), nil
}

// others returns the components that are not ours.
func (l *Link) others(members []Member) (others []Member, err error) {
	for _, m := range members {
		ours, err := l.isOurs(m.Program)
		if err != nil {
			return nil, err
		}
		if !ours {
			others = append(others, m)
		}
	}
	return others, nil
}

// Attached reports whether the component is in the dispatcher that holds the hook. libxdp takes it along when it exchanges
// the dispatcher. After an error the component may be there or not.
func (l *Link) Attached() (bool, error) {
	// Two system calls are enough while the dispatcher is the one of the last look.
	if a, err := l.hook.attached(); err == nil && a.program == l.id && (l.id == 0 || exists(l.pin)) {
		return l.id != 0, nil
	}

	l.id = 0
	err := l.hook.look(func(d *dispatcher) error {
		for i, m := range d.members {
			ours, err := l.isOurs(m.Program)
			if err != nil {
				return err
			}
			if pin := filepath.Join(l.hook.dir(d.id), place(i)+"-link"); ours && exists(pin) {
				l.id, l.pin = d.id, pin
			}
		}
		return nil
	})
	return err == nil && l.id != 0, err
}

func exists(pin string) bool {
	_, err := os.Lstat(pin)
	return err == nil
}

// Update implements link.Link: the program, which was loaded for a mould, takes the place of our component, or a new place.
func (l *Link) Update(p *ebpf.Program) error {
	info, err := p.Info()
	if err != nil {
		return fmt.Errorf("asking for the program of a slot: %w", err)
	}

	l.id = 0
	ours := Member{
		Program:  p,
		Name:     info.Name,
		Priority: first,
		Actions:  1 << verdictPass,
		Frags:    true,
	}
	_, err = l.hook.Change(func(members []Member) ([]Member, error) {
		others, err := l.others(members)
		return append(others, ours), err
	})
	return err
}

// Detach implements link.Link.
func (l *Link) Detach() error {
	if _, err := l.hook.attached(); errors.Is(err, syscall.ENODEV) {
		return locked(l.leave)
	}
	if attached, err := l.Attached(); err != nil || !attached {
		return err
	}
	_, err := l.hook.Change(l.others)
	if errors.Is(err, ErrNone) {
		err = nil
	}
	if err == nil {
		l.id = 0
	}
	return err
}

// leave empties our place if the namespace has no such interface. It was deleted, or moved to another namespace, where the
// dispatcher runs on. The caller holds the lock of the pins.
func (l *Link) leave() error {
	_, err := leave(fmt.Sprintf("dispatch-%d-*", l.hook.ifindex), l.isOurs)
	l.id = 0
	return err
}

// Close implements link.Link. The component stays.
func (l *Link) Close() error { return l.hook.Close() }

// Pin implements link.Link. It does nothing: libxdp's pins exist.
func (l *Link) Pin(string) error { return nil }

// Unpin implements link.Link.
func (l *Link) Unpin() error { return nil }

// Before calls f with each component that runs before ours.
func (l *Link) Before(f func(name string, id ebpf.ProgramID)) error {
	return l.hook.look(func(d *dispatcher) error {
		for _, m := range d.members {
			if ours, err := l.isOurs(m.Program); ours || err != nil {
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

// LeaveAll empties the places of all programs that use a map, in the dispatchers of all interfaces and namespaces. To remove
// a pin takes no lock, so LeaveAll does not wait for a process that hangs with the lock of the pins.
func LeaveAll(uses *ebpf.Map) (emptied int, err error) {
	info, err := uses.Info()
	if err != nil {
		return 0, fmt.Errorf("asking for the map of a slot: %w", err)
	}
	id, _ := info.ID()
	l := &Link{uses: id}
	return leave("dispatch-*-*", l.isOurs)
}

// leave empties our places in the dispatchers whose pins match. It loads no dispatcher: the pin of a component's link keeps
// the component in its place, so to remove that pin is enough.
func leave(dispatchers string, isOurs func(*ebpf.Program) (bool, error)) (emptied int, err error) {
	pins, _ := filepath.Glob(filepath.Join(Dir, dispatchers, "prog*-prog"))
	var errs []error
	for _, pin := range pins {
		left, err := leaveOne(pin, isOurs)
		if left {
			emptied++
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("emptying a place of the dispatcher %s: %w", filepath.Base(filepath.Dir(pin)), err))
		}
	}
	return emptied, errors.Join(errs...)
}

// leaveOne empties the place of a pinned program, if the program is ours.
func leaveOne(pin string, isOurs func(*ebpf.Program) (bool, error)) (emptied bool, err error) {
	p, err := ebpf.LoadPinnedProgram(pin, nil)
	if err != nil {
		return false, err
	}
	defer p.Close()

	if ours, err := isOurs(p); err != nil || !ours {
		return false, err
	}
	err = empty(strings.TrimSuffix(pin, "prog") + "link")
	return err == nil, err
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

// Holds reports whether a dispatcher holds the XDP hook of an interface, as far as this process may look.
func Holds(ifindex int) bool {
	h, err := NewHook(ifindex, nil)
	if err != nil {
		return false
	}
	defer h.Close()
	a, err := h.attached()
	if err != nil || a.program == 0 {
		return false
	}
	p, err := ebpf.NewProgramFromID(a.program)
	if err != nil {
		return false
	}
	defer p.Close()
	_, err = configured(p)
	return !errors.Is(err, ErrNone)
}
