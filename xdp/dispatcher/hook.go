package dispatcher

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Dir holds libxdp's pins, of every dispatcher of the host.
const Dir = "/sys/fs/bpf/xdp"

// errNone means that no dispatcher is on the hook.
var errNone = errors.New("no libxdp dispatcher holds the hook")

// errBusy means that other processes kept changing the dispatcher, or did not unlock the pins.
var errBusy = errors.New("other processes change the dispatcher")

// member is a component of a dispatcher.
type member struct {
	Program  *ebpf.Program
	Name     string // of the program
	Priority uint32 // the lowest runs first
	Actions  uint32 // bit v is set if verdict v lets the next component run
	Frags    bool   // supports frames of several buffers
}

// dispatcher is the dispatcher on a hook, with its components. Callers must close it.
type dispatcher struct {
	id      ebpf.ProgramID
	program *ebpf.Program
	mode    uint32 // how it is attached, as XDP_FLAGS_
	version uint8
	members []member
}

func (d *dispatcher) close() {
	closeAll(d.members)
	d.program.Close()
}

func closeAll(members []member) {
	for _, m := range members {
		m.Program.Close()
	}
}

// dir returns the directory in which libxdp pins the components of a dispatcher.
func (h *hook) dir(id ebpf.ProgramID) string {
	return filepath.Join(Dir, fmt.Sprintf("dispatch-%d-%d", h.ifindex, id))
}

// attachment is the program on a hook.
type attachment struct {
	program ebpf.ProgramID // 0: the hook is free
	mode    uint32         // XDP_FLAGS_DRV_MODE or XDP_FLAGS_SKB_MODE; 0: another mode, such as hw
	ifname  string
}

// read reads the dispatcher that holds the hook. The error is errNone if another program holds the hook, or none.
func (h *hook) read() (_ *dispatcher, err error) {
	a, err := h.attached()
	if err != nil {
		return nil, err
	}
	if a.program == 0 {
		return nil, errNone
	}

	p, err := ebpf.NewProgramFromID(a.program)
	if err != nil {
		return nil, fmt.Errorf("opening the program of the hook: %w", err)
	}
	d := &dispatcher{id: a.program, program: p, mode: a.mode}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	c, err := configured(p)
	if err != nil {
		return nil, err
	}
	if a.mode == 0 {
		return nil, fmt.Errorf("reading the dispatcher of %s: it runs on the NIC (mode hw), where programs cannot be exchanged; "+
			"load its programs in the driver: xdp-loader unload %s --all; xdp-loader load --mode native %s FILE", a.ifname, a.ifname, a.ifname)
	}
	d.version = c.Version

	for i := range int(c.Programs) {
		p, err := ebpf.LoadPinnedProgram(filepath.Join(h.dir(d.id), place(i)+"-prog"), nil)
		if err != nil {
			return nil, fmt.Errorf("opening program %d of the dispatcher, which was not pinned by libxdp in %s: %w", i, Dir, err)
		}
		d.members = append(d.members, member{ // from here on close closes the program
			Program:  p,
			Priority: c.Priorities[i],
			Actions:  c.Actions[i],
			Frags:    c.Flags[i]&hasFrags != 0,
		})
		info, err := p.Info()
		if err != nil {
			return nil, fmt.Errorf("asking for program %d of the dispatcher: %w", i, err)
		}
		d.members[i].Name = info.Name
	}
	return d, nil
}

// configured returns the configuration of a dispatcher. The error is errNone for any other program.
func configured(p *ebpf.Program) (config, error) {
	info, err := p.Info()
	if err != nil {
		return config{}, fmt.Errorf("asking for the program of the hook: %w", err)
	}
	ids, _ := info.MapIDs()
	if info.Name != name || len(ids) != 1 {
		return config{}, errNone
	}
	m, err := ebpf.NewMapFromID(ids[0])
	if err != nil {
		return config{}, fmt.Errorf("opening the configuration of the dispatcher: %w", err)
	}
	defer m.Close()
	value, err := m.LookupBytes(uint32(0))
	if err != nil {
		return config{}, fmt.Errorf("reading the configuration of the dispatcher: %w", err)
	}
	return decode(value)
}

// edit turns the list of components into another one. It may be called several times, and must not close any program.
type edit func([]member) ([]member, error)

// change replaces the dispatcher on the hook by one with the components returned by edit. It returns the id of the new dispatcher.
// If edit returns no components, change frees the hook and returns 0. After an error the hook is unchanged.
func (h *hook) change(edit edit) (id ebpf.ProgramID, err error) {
	unlock, err := lock()
	if err != nil {
		return 0, err
	}
	defer unlock()
	for range 20 {
		if id, err = h.changeOnce(edit); !errors.Is(err, os.ErrExist) && !errors.Is(err, os.ErrNotExist) {
			return id, err
		}
		// libxdp has replaced the dispatcher under us. It makes some pins without taking the lock.
		time.Sleep(50 * time.Millisecond)
	}
	return 0, fmt.Errorf("%w: %w", errBusy, err)
}

// changeOnce is one attempt of change.
func (h *hook) changeOnce(edit edit) (ebpf.ProgramID, error) {
	old, err := h.read()
	if err != nil {
		return 0, err
	}
	defer old.close()

	members, err := edit(slices.Clone(old.members))
	if err != nil {
		return 0, err
	}
	slices.SortStableFunc(members, func(a, b member) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Name, b.Name))
	})
	switch {
	case len(members) > mostMembers:
		return 0, fmt.Errorf("all %d places of the dispatcher are taken; xdp-loader status lists the programs, and xdp-loader unload removes one", mostMembers)
	case len(members) == 0:
		if err := h.exchange(nil, old); err != nil {
			return 0, err
		}
		h.discard(old)
		return 0, nil
	}

	fresh, err := load(configOf(old.version, members))
	if err != nil {
		return 0, err
	}
	defer fresh.Close()
	info, err := fresh.Info()
	if err != nil {
		return 0, fmt.Errorf("asking for a dispatcher: %w", err)
	}
	id, _ := info.ID()

	err = h.pin(h.dir(id), fresh, members)
	if err == nil {
		err = h.exchange(fresh, old)
	}
	if err != nil {
		return 0, errors.Join(err, os.RemoveAll(h.dir(id)))
	}
	h.discard(old)
	return id, nil
}

// discard removes the pins of a replaced dispatcher, which detaches its components. So it first waits until no packet is in it. If it
// cannot wait, it leaves the pins behind. That only costs memory, and libxdp does the same.
func (h *hook) discard(old *dispatcher) {
	if h.grace() == nil {
		os.RemoveAll(h.dir(old.id))
	}
}

// pin attaches components to a dispatcher, and pins them the way libxdp does.
func (h *hook) pin(dir string, d *ebpf.Program, members []member) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("pinning a dispatcher: %w", err)
	}
	for i, m := range members {
		l, err := link.AttachFreplace(d, place(i), m.Program)
		if err != nil {
			return fmt.Errorf("attaching program %s to place %d of a dispatcher: %w", m.Name, i, err)
		}
		err = errors.Join(l.Pin(filepath.Join(dir, place(i)+"-link")), l.Close())
		if err == nil {
			err = pinCopy(m.Program, filepath.Join(dir, place(i)+"-prog"))
		}
		if err != nil {
			return fmt.Errorf("pinning program %s of a dispatcher: %w", m.Name, err)
		}
	}
	return nil
}

// pinCopy makes a second pin for a program. [ebpf.Program.Pin] alone would move the first one.
func pinCopy(p *ebpf.Program, path string) error {
	c, err := p.Clone()
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Pin(path)
}

// look calls f with the dispatcher on the hook, if there is one. It does not lock the pins. Otherwise a process hanging with the lock
// would block us at every hook.
func (h *hook) look(f func(*dispatcher) error) error {
	d, err := h.settled()
	if errors.Is(err, errNone) || errors.Is(err, syscall.ENODEV) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.close()
	return f(d)
}

// settled reads the dispatcher on the hook. If another process replaces the dispatcher in that moment, its pins disappear, and settled
// reads again. A replacement takes milliseconds, so three tries are enough.
func (h *hook) settled() (d *dispatcher, err error) {
	pins, err := openTrusted()
	if errors.Is(err, os.ErrNotExist) {
		return nil, errNone // the host has no pins of libxdp
	}
	if err != nil {
		return nil, err
	}
	pins.Close()

	for range 3 {
		if d, err = h.read(); !errors.Is(err, os.ErrNotExist) {
			return d, err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, err
}

// locked calls f while it has libxdp's pins locked. It does nothing on a host without such pins.
func locked(f func() error) error {
	unlock, err := lock()
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	return f()
}

// lock locks libxdp's pins against libxdp, which never keeps them locked for more than milliseconds. After 5 seconds lock gives up.
func lock() (unlock func(), err error) {
	f, err := openTrusted()
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := flock(f)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if time.Now().After(end) {
			f.Close()
			return nil, fmt.Errorf("locking %s: %w: %w", Dir, errBusy, err)
		}
	}
}
