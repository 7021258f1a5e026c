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

// Link stands for our component in the dispatcher of an interface. It implements link.Link.
//
// It has no descriptor of the program. libxdp's pins keep the component attached, even after this process has ended. A component
// is ours if its program uses the map passed to NewLink.
type Link struct {
	link.Link // nil; calling a method not overridden below panics
	hook      *hook
	uses      ebpf.MapID

	// Where Attached last saw the component.
	id  ebpf.ProgramID // of the dispatcher; 0: nowhere
	pin string         // of the link between component and dispatcher, which keeps the component attached
}

// first is the priority of our component. libxdp's default is 50. We run first, so that we see every packet.
const first = 0

// NewLink returns the link for the component that uses a map. The interface is looked up in the network namespace of the calling
// thread. grace must wait for an RCU grace period. NewLink attaches nothing: Update does. But an earlier process may have left
// a component, which the link then stands for.
func NewLink(ifindex int, uses *ebpf.Map, grace func() error) (*Link, error) {
	info, err := uses.Info()
	if err != nil {
		return nil, fmt.Errorf("asking for the map of a slot: %w", err)
	}
	h, err := newHook(ifindex, grace)
	if err != nil {
		return nil, err
	}
	id, _ := info.ID()
	return &Link{hook: h, uses: id}, nil
}

// isOurs reports whether a program uses our map.
func (l *Link) isOurs(p *ebpf.Program) (bool, error) {
	info, err := p.Info()
	if err != nil {
		return false, fmt.Errorf("asking for a program of the dispatcher: %w", err)
	}
	ids, _ := info.MapIDs()
	return slices.Contains(ids, l.uses), nil
}

// others returns all components except ours.
func (l *Link) others(members []member) (others []member, err error) {
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

// Attached reports whether our component is in the dispatcher on the hook. When libxdp replaces a dispatcher, it moves the component
// to the new one. An error means that we cannot tell.
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

// Update implements link.Link. The program replaces our component, or becomes a new one. It must have been loaded for a Mould.
func (l *Link) Update(p *ebpf.Program) error {
	info, err := p.Info()
	if err != nil {
		return fmt.Errorf("asking for the program of a slot: %w", err)
	}

	l.id = 0
	ours := member{
		Program:  p,
		Name:     info.Name,
		Priority: first,
		Actions:  1 << verdictPass,
		Frags:    true,
	}
	_, err = l.hook.change(func(members []member) ([]member, error) {
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
	_, err := l.hook.change(l.others)
	if errors.Is(err, errNone) {
		err = nil
	}
	if err == nil {
		l.id = 0
	}
	return err
}

// leave detaches our component if the interface has left the namespace. It may have been moved to another namespace, where its
// dispatcher still runs. The caller must have locked the pins.
func (l *Link) leave() error {
	_, err := leave(fmt.Sprintf("dispatch-%d-*", l.hook.ifindex), l.isOurs)
	l.id = 0
	return err
}

// Close implements link.Link. The component stays attached.
func (l *Link) Close() error { return l.hook.Close() }

// Pin implements link.Link. It does nothing, because Update has made the pins of libxdp.
func (l *Link) Pin(string) error { return nil }

// Unpin implements link.Link. It does nothing.
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

// LeaveAll detaches every component that uses a map, from the dispatchers of all interfaces and namespaces. It returns their number.
// It only removes pins, which needs no lock. So it works even if another process hangs with the pins locked.
func LeaveAll(uses *ebpf.Map) (emptied int, err error) {
	info, err := uses.Info()
	if err != nil {
		return 0, fmt.Errorf("asking for the map of a slot: %w", err)
	}
	id, _ := info.ID()
	l := &Link{uses: id}
	return leave("dispatch-*-*", l.isOurs)
}

// leave detaches our components from all dispatchers whose directory of pins matches the pattern. It does not replace the
// dispatchers. Removing the pin of a component's link is enough to detach the component.
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

// leaveOne detaches a pinned component, if it is ours.
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

// empty detaches a component by removing the pin of its link.
//
// It opens the link before, and closes it after, for a reason. When the last reference to a link is a pin, the kernel detaches the
// program later, in a work item, and packets still meet it until then. When the last reference is a descriptor, closing it detaches
// the program at once (bpf_link_put_direct in kernel/bpf/syscall.c).
func empty(pin string) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return os.Remove(pin) // detaching late is better than not at all
	}
	return errors.Join(os.Remove(pin), l.Close())
}

// Holds reports whether a dispatcher is on the XDP hook of an interface. Without the privilege to look, it returns false.
func Holds(ifindex int) bool {
	h, err := newHook(ifindex, nil)
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
	return !errors.Is(err, errNone)
}
