// Package memkernel is a kernel in the memory of a test: network interfaces, hooks, pinned maps and links. The packages
// xdp and dataplane/engine/xdp run over it without a privilege, in the time of testing/synctest.
//
// A Host has interfaces and programs on their hooks. A Process is what package kernel calls a Kernel: it holds
// descriptors. What a process has pinned is a file of its directory of pins, as on a bpffs. Kill drops a process and
// returns the next one, over a copy of what it has left: the old one may run to its end, and reaches nothing any more.
//
// A program counts by the live entries of its map, not by the tables that lead to them: package xdp has tests of those.
package memkernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/kernel"
	"github.com/flowtally/flowtally/xdp"
	"github.com/flowtally/flowtally/xdp/links"
)

// ErrKilled is the error of every call of a process that was killed.
var ErrKilled = errors.New("the process was killed")

// Host has the interfaces, the programs on their hooks, and all objects that a process holds or has pinned.
type Host struct {
	mu         sync.Mutex
	interfaces map[string]*Interface
	attached   []*hook
	objects    map[int]any // *memory or *hook, by id
	next       int         // id of an object or an interface
	watchers   map[chan links.Event]*Process
	pages      *Pages
	mapped     [][]byte // of all maps
}

// Pages are the memory of maps. Hosts that follow one another use the same Pages: a page that was used once costs no fault
// again. The zero value works. Hosts that run at the same time have Pages of their own.
type Pages struct{ free map[int][][]byte } // by size, zero

// take returns memory that is zero. A page of it costs nothing until it is used: a process uses few pages of its maps.
func (p *Pages) take(size int) ([]byte, error) {
	if list := p.free[size]; len(list) > 0 {
		p.free[size] = list[:len(list)-1]
		return list[len(list)-1], nil
	}
	m, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes: %w", size, err)
	}
	return m, nil
}

// give takes memory back that nobody uses any more.
func (p *Pages) give(m []byte) {
	eachWritten(m, func(_ int, page []byte) { clear(page) })
	if p.free == nil {
		p.free = make(map[int][][]byte)
	}
	p.free[len(m)] = append(p.free[len(m)], m)
}

// eachWritten calls fn with the pages of m that are not zero, and where they begin.
func eachWritten(m []byte, fn func(at int, page []byte)) {
	var zero [4096]byte
	for at := 0; at < len(m); at += len(zero) {
		page := m[at:min(at+len(zero), len(m))]
		if !bytes.Equal(page, zero[:len(page)]) {
			fn(at, page)
		}
	}
}

// Interface is a network interface of a Host.
type Interface struct {
	kernel.Interface
	refused map[Hook]error
}

// Hook is a hook of an interface.
type Hook string

// The hooks of an interface.
const (
	XDP        Hook = "xdp"
	TCXIngress Hook = "tcx-ingress"
	TCXEgress  Hook = "tcx-egress"
)

// memory is a map.
type memory struct {
	id    int
	name  string
	value []byte
}

// hook is a link, and the program on its hook.
type hook struct {
	id    int
	index int // of the interface; 0: detached
	at    kernel.Hook
	maps  [4]*memory // counters, entries, meta, members; the last may be nil
	held  int        // descriptors
	pin   string     // path
}

// NewHost returns a host without interfaces, whose maps are in these pages.
func NewHost(pages *Pages) *Host {
	return &Host{
		pages:      pages,
		interfaces: make(map[string]*Interface),
		objects:    make(map[int]any),
		watchers:   make(map[chan links.Event]*Process),
		next:       1,
	}
}

// Close gives the maps of the host back to its pages. No process may run any more, also no killed one.
func (h *Host) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.mapped {
		h.pages.give(m)
	}
	h.mapped = nil
}

// mmap returns memory that is zero.
func (h *Host) mmap(size int) ([]byte, error) {
	m, err := h.pages.take(size)
	if err == nil {
		h.mapped = append(h.mapped, m)
	}
	return m, err
}

// copyOf returns a copy of memory. It does not use the pages that are zero.
func (h *Host) copyOf(from []byte) ([]byte, error) {
	to, err := h.mmap(len(from))
	if err != nil {
		return nil, err
	}
	eachWritten(from, func(at int, page []byte) { copy(to[at:], page) })
	return to, nil
}

// Process is a process that uses the kernel of a host.
type Process struct {
	host   *Host
	killed bool
	maps   map[string]*memory // the last of each name
	step   func(what string)
}

var _ kernel.Kernel = (*Process)(nil)

// Boot returns a process. step is called ahead of everything that the process does to what is durable, and without a
// lock: it may call Kill. It may be nil.
func (h *Host) Boot(step func(what string)) *Process {
	return &Process{host: h, maps: make(map[string]*memory), step: step}
}

// do runs fn with the host locked, unless the process was killed.
func (p *Process) do(what string, fn func(h *Host) error) error {
	if p.step != nil && what != "" {
		p.step(what)
	}
	p.host.mu.Lock()
	defer p.host.mu.Unlock()
	if p.killed {
		return ErrKilled
	}
	return fn(p.host)
}

// Store implements kernel.Kernel.
func (p *Process) Store(what string) {
	if p.step != nil {
		p.step(what)
	}
}

// Kill ends the process. What it has pinned in from stays, and is found pinned in to.
func (p *Process) Kill(from, to string) error {
	h := p.host
	h.mu.Lock()
	defer h.mu.Unlock()
	p.killed = true
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	copies := make(map[*memory]*memory)
	copyOf := func(m *memory) (*memory, error) {
		if copies[m] == nil && m != nil {
			value, err := h.copyOf(m.value)
			if err != nil {
				return nil, err
			}
			copies[m] = &memory{id: m.id, name: m.name, value: value}
			h.objects[m.id] = copies[m]
		}
		return copies[m], nil
	}
	kept := make(map[*hook]bool)
	was := maps.Clone(h.objects)
	names, err := os.ReadDir(from)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, n := range names {
		id, err := pinned(filepath.Join(from, n.Name()))
		if err != nil {
			return err
		}
		switch o := was[id].(type) {
		case *memory:
			if _, err := copyOf(o); err != nil {
				return err
			}
		case *hook:
			kept[o] = true
			c := *o
			c.held, c.pin = 0, filepath.Join(to, n.Name())
			for i, m := range o.maps {
				if c.maps[i], err = copyOf(m); err != nil {
					return err
				}
			}
			h.objects[id] = &c
			if i := slices.Index(h.attached, o); i >= 0 {
				h.attached[i] = &c
			}
		}
		if err := pinAt(filepath.Join(to, n.Name()), id); err != nil {
			return err
		}
	}
	h.attached = slices.DeleteFunc(h.attached, func(k *hook) bool { return h.objects[k.id] == k && k.held > 0 && !kept[k] })
	for c, of := range h.watchers {
		if of == p {
			delete(h.watchers, c)
		}
	}
	return nil
}

// pinAt makes a pin: a symbolic link to the id of its object, which takes one system call to make and one to read.
func pinAt(path string, id int) error { return os.Symlink(strconv.Itoa(id), path) }

// pinned returns the id of the object of a pin.
func pinned(path string) (int, error) {
	id, err := os.Readlink(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(id)
}

// CPUs implements kernel.Kernel.
func (p *Process) CPUs() (int, error) { return 1, nil }

// Wait implements kernel.Kernel. Package xdp sleeps after an error of it, with a mutex held: that would stop the clock of
// a bubble of testing/synctest.
func (p *Process) Wait() error {
	if err := p.do("wait", func(*Host) error { return nil }); !errors.Is(err, ErrKilled) {
		return err
	}
	return nil
}

// LockPins implements kernel.Kernel.
func (p *Process) LockPins(dir string) (f *os.File, err error) {
	err = p.do("lock", func(*Host) error {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if f, err = os.Open(dir); err != nil {
			return err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			return errors.Join(xdp.ErrInUse, err, f.Close())
		}
		return nil
	})
	return f, err
}

// NewMap implements kernel.Kernel.
func (p *Process) NewMap(name string, size int) (kernel.Map, error) {
	m := &memory{name: strings.TrimPrefix(name, "ft_")}
	err := p.do("new map", func(h *Host) (err error) {
		if m.value, err = h.mmap(size); err != nil {
			return err
		}
		m.id = h.next
		h.next++
		h.objects[m.id] = m
		p.maps[m.name] = m
		return nil
	})
	return &openMap{p: p, memory: m}, err
}

// OpenMap implements kernel.Kernel.
func (p *Process) OpenMap(path string) (kernel.Map, error) {
	var m *memory
	err := p.do("", func(h *Host) error {
		id, err := pinned(path)
		if err != nil {
			return err
		}
		m, _ = h.objects[id].(*memory)
		if m == nil {
			return fmt.Errorf("opening %s: no map", path)
		}
		p.maps[m.name] = m
		return nil
	})
	return &openMap{p: p, memory: m, pin: path}, err
}

// openMap is a descriptor of a map.
type openMap struct {
	*memory
	p   *Process
	pin string
}

// Pin implements kernel.Map.
func (m *openMap) Pin(path string) error {
	return m.p.do("pin "+filepath.Base(path), func(*Host) error {
		m.pin = path
		return pinAt(path, m.id)
	})
}

// Unpin implements kernel.Map.
func (m *openMap) Unpin() error {
	return m.p.do("", func(*Host) error {
		err := os.Remove(m.pin)
		if m.pin = ""; errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
}

// Close implements kernel.Map.
func (m *openMap) Close() error { return nil }

// ValueSize implements kernel.Map.
func (m *openMap) ValueSize() uint32 { return uint32(len(m.value)) }

// Type implements kernel.Map.
func (m *openMap) Type() ebpf.MapType { return ebpf.Array }

// MaxEntries implements kernel.Map.
func (m *openMap) MaxEntries() uint32 { return 1 }

// Memory implements kernel.Map.
func (m *openMap) Memory() []byte { return m.value }

// Attach implements kernel.Kernel.
func (p *Process) Attach(at kernel.Hook) (link.Link, error) {
	k := &hook{index: at.Index, at: at, held: 1}
	err := p.do("attach", func(h *Host) error {
		i := h.byIndex(at.Index)
		if i == nil {
			return unix.ENODEV
		}
		on := hookOf(at)
		if err := i.refused[on]; err != nil {
			return err
		}
		if on == XDP && (i.Program != 0 || h.on(at.Index, XDP) != nil) {
			return unix.EBUSY
		}
		k.id = h.next
		h.next++
		k.maps = [4]*memory{p.maps["counters"], p.maps["entries"], p.maps["meta"], p.maps["members"]}
		h.objects[k.id] = k
		h.attached = append(h.attached, k)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &openLink{p: p, hook: k}, nil
}

func hookOf(at kernel.Hook) Hook {
	switch {
	case at.Egress:
		return TCXEgress
	case at.TCX:
		return TCXIngress
	}
	return XDP
}

// OpenLink implements kernel.Kernel.
func (p *Process) OpenLink(path string) (link.Link, error) {
	var k *hook
	err := p.do("", func(h *Host) error {
		id, err := pinned(path)
		if err != nil {
			return err
		}
		k, _ = h.objects[id].(*hook)
		if k == nil {
			return fmt.Errorf("opening %s: no link", path)
		}
		k.held++
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &openLink{p: p, hook: k}, nil
}

// openLink is a descriptor of a link.
type openLink struct {
	link.Link // nil: the interface has a method that no other package implements
	*hook
	p      *Process
	closed bool
}

var _ kernel.Link = (*openLink)(nil)

// Index implements kernel.Link.
func (l *openLink) Index() (index int) {
	l.p.host.mu.Lock()
	defer l.p.host.mu.Unlock()
	return l.index
}

// InNamespace implements kernel.Link.
func (l *openLink) InNamespace() bool { return true }

// Update implements link.Link.
func (l *openLink) Update(*ebpf.Program) error {
	return l.p.do("update", func(*Host) error {
		if l.index == 0 {
			return unix.ENOLINK
		}
		l.maps[3] = l.p.maps["members"]
		return nil
	})
}

// Detach implements link.Link.
func (l *openLink) Detach() error {
	return l.p.do("detach", func(h *Host) error {
		h.detach(l.hook)
		return nil
	})
}

// Pin implements link.Link.
func (l *openLink) Pin(path string) error {
	return l.p.do("pin "+filepath.Base(path), func(*Host) error {
		l.pin = path
		return pinAt(path, l.id)
	})
}

// Unpin implements link.Link.
func (l *openLink) Unpin() error {
	return l.p.do("", func(*Host) error {
		err := os.Remove(l.pin)
		if l.pin = ""; errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
}

// Close implements link.Link. A link without a descriptor and a pin is detached.
func (l *openLink) Close() error {
	err := l.p.do("close", func(h *Host) error {
		if l.closed {
			return nil
		}
		l.closed = true
		if l.held--; l.held > 0 {
			return nil
		}
		if id, err := pinned(l.pin); err != nil || id != l.id {
			h.detach(l.hook)
		}
		return nil
	})
	if errors.Is(err, ErrKilled) {
		return nil
	}
	return err
}

func (h *Host) byIndex(index int) *Interface {
	for _, i := range h.interfaces {
		if i.Index == index {
			return i
		}
	}
	return nil
}

// on returns our program on a hook, or nil.
func (h *Host) on(index int, at Hook) *hook {
	for _, k := range h.attached {
		if k.index == index && hookOf(k.at) == at {
			return k
		}
	}
	return nil
}

func (h *Host) detach(k *hook) {
	k.index = 0
	h.attached = slices.DeleteFunc(h.attached, func(o *hook) bool { return o == k })
}

// XDPProgram implements kernel.Kernel.
func (p *Process) XDPProgram(index int) (program uint32) {
	h := p.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := h.byIndex(index); i != nil {
		return h.programOf(i)
	}
	return 0
}

func (h *Host) programOf(i *Interface) uint32 {
	if k := h.on(i.Index, XDP); k != nil {
		return uint32(k.id)
	}
	return i.Program
}

// Interface implements kernel.Kernel.
func (p *Process) Interface(name string) (kernel.Interface, bool) {
	h := p.host
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.interfaces[name]
	if i == nil {
		return kernel.Interface{}, false
	}
	out := i.Interface
	out.Program = h.programOf(i)
	return out, true
}

// Interfaces implements kernel.Kernel.
func (p *Process) Interfaces() (names []string) {
	h := p.host
	h.mu.Lock()
	defer h.mu.Unlock()
	for n := range h.interfaces {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Watch implements kernel.Kernel.
func (p *Process) Watch(ctx context.Context) (<-chan links.Event, error) {
	h := p.host
	events := make(chan links.Event, 256)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, i := range h.interfaces {
		events <- i.event(links.Added)
	}
	h.watchers[events] = p
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers, events)
	})
	return events, nil
}

func (i *Interface) event(kind links.Kind) links.Event {
	return links.Event{Kind: kind, Name: i.Name, Index: i.Index, Link: links.Link{Index: i.Index, Name: i.Name, Kind: i.Kind}}
}

// tell sends an event to the watchers. A watcher that has fallen far behind misses it.
func (h *Host) tell(e links.Event) {
	for c := range h.watchers {
		select {
		case c <- e:
		default:
		}
	}
}

// Add adds an interface of a kind: "" is hardware with native XDP, "veth" counts by TCX.
func (h *Host) Add(name, kind string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := &Interface{Interface: kernel.Interface{Index: h.next, Name: name, Kind: kind}, refused: make(map[Hook]error)}
	h.next++
	h.interfaces[name] = i
	h.tell(i.event(links.Added))
}

// Delete deletes an interface, with the programs on its hooks.
func (h *Host) Delete(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.interfaces[name]
	if i == nil {
		return
	}
	delete(h.interfaces, name)
	for _, k := range slices.Clone(h.attached) {
		if k.index == i.Index {
			h.detach(k)
		}
	}
	h.tell(i.event(links.Removed))
}

// Rename gives an interface another name.
func (h *Host) Rename(from, to string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.interfaces[from]
	if i == nil || h.interfaces[to] != nil {
		return
	}
	delete(h.interfaces, from)
	i.Name = to
	h.interfaces[to] = i
	e := i.event(links.Renamed)
	e.OldName = from
	h.tell(e)
}

// Detach takes our program off a hook by force, and reports whether there was one. No event tells that.
func (h *Host) Detach(name string, at Hook) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.interfaces[name]
	if i == nil {
		return false
	}
	k := h.on(i.Index, at)
	if k == nil {
		return false
	}
	h.detach(k)
	return true
}

// Refuse makes a hook refuse programs with an error, or take them again with nil.
func (h *Host) Refuse(name string, at Hook, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := h.interfaces[name]; i != nil {
		i.refused[at] = err
	}
}

// Hold puts a program of another owner on the XDP hook of an interface, or takes it off with 0.
func (h *Host) Hold(name string, program uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := h.interfaces[name]; i != nil && (program == 0 || h.on(i.Index, XDP) == nil) {
		i.Program = program
	}
}

// Held returns the hooks of an interface that have our program.
func (h *Host) Held(name string) (all []Hook) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.interfaces[name]
	if i == nil {
		return nil
	}
	for _, at := range []Hook{XDP, TCXIngress, TCXEgress} {
		if h.on(i.Index, at) != nil {
			all = append(all, at)
		}
	}
	return all
}

// Packet is a packet of UDP over IPv4.
type Packet struct {
	Port  uint16 // the destination
	Bytes uint64
}

// Pass hands a packet to the programs on the hooks of one direction of an interface, and returns how many have seen it.
func (h *Host) Pass(name string, egress bool, packet Packet) (seen int, dropped bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.interfaces[name]
	if i == nil {
		return 0, false, nil
	}
	on := []Hook{XDP, TCXIngress}
	if egress {
		on = []Hook{TCXEgress}
	}
	for _, at := range on {
		k := h.on(i.Index, at)
		if k == nil {
			continue
		}
		seen++
		drop, err := k.count(packet)
		if err != nil || drop {
			return seen, drop, err
		}
	}
	return seen, false, nil
}

// count is the program.
func (k *hook) count(packet Packet) (drop bool, err error) {
	var members []byte
	if m := k.maps[3]; m != nil {
		members = m.value
	}
	counters, decide, err := xdp.SimulatedOver(k.maps[0].value, k.maps[1].value, k.maps[2].value, members)
	if err != nil {
		return false, err
	}
	key := xdp.Key{}
	key.Out.Flags = xdp.FlagEth | xdp.FlagIPv4 | xdp.FlagL4
	if k.at.Egress {
		key.Out.Flags |= xdp.FlagEgress
	}
	key.Out.EthType = [2]byte{0x08, 0x00}
	key.Out.Proto, key.Out.Next, key.Out.TTL = unix.IPPROTO_UDP, unix.IPPROTO_UDP, 64
	key.Out.Addr = [32]byte{192, 0, 2, 1, 192, 0, 2, 2}
	key.Out.L4 = [4]byte{0x30, 0x39, byte(packet.Port >> 8), byte(packet.Port)}
	key.Out.Port = k.at.Port
	counter, drop, ok := decide(&key)
	if ok {
		counters.Update(0, counter, 1, packet.Bytes)
	}
	return drop, nil
}
