package rdma

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/trial"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/shm"
)

// Backend counts flows in the flow tables of RDMA devices. The control methods hold mu; Read and ReadTimed do not.
//
// Lock order: Backend.mu, then slotPool.mu or reader.mu, then pacer.mu. Add and remove rules under Backend.mu only. The
// readers query counters under slotPool.mu alone: a command may take long, and must not delay a control call.
type Backend struct {
	opts       Options
	log        *slog.Logger
	now        func() int64 // shm.Now, or the clock of a test
	hw         hardware
	ns         *backend.Netns // of the interfaces
	pace       *pacer
	changed    chan struct{}
	closeBound time.Duration   // CloseBound, or less in tests
	ctx        context.Context // ends with Close
	stop       context.CancelFunc
	running    sync.WaitGroup // searchDevices

	entryByID atomic.Pointer[[]atomic.Pointer[entry]] // may have free elements at its end

	mu          sync.Mutex
	patterns    backend.Patterns
	devices     []*device         // of the interfaces, and those that are leaving
	entryByName map[string]*entry // by the flow's name
	freeIDs     []uint32
	nextID      uint32 // the lowest ID that was never used
	lastCookie  uint64 // odd, so that no cookie is 0
	absent      error  // why no device was found yet; nil after the first
	closed      bool
}

// entry is a flow that devices count, or have counted: its samples can be read after its rules are gone, until another flow
// gets the ID. Read uses it without a lock, so never change the list of devices. replaceDevice makes a new entry instead.
type entry struct {
	backend.Placed
	id      uint32
	devices []*deviceFlow
}

// Options are the parameters of New.
type Options struct {
	RDMA       dataplane.RDMAConfig
	Interfaces []dataplane.Interface // names and patterns
	// Period is the time between two reads of one counter, where the budget of commands allows it. 0 is
	// dataplane.DefaultPollPeriod; less than backend.ReadPeriodMin is ReadPeriodMin.
	Period time.Duration
	Guard  *trial.Guard // nil allows every device
	// Switchdev names a device that may count although its NIC is in switchdev mode, as a selftest of the device does.
	Switchdev string
	Logger    *slog.Logger
	Host      Host // nil: the devices of libibverbs
}

func (o Options) budget() Budget { return Budget{o.RDMA.CommandsPerSecond, o.Period} }

// New opens the library and the devices of the interfaces, and searches for missing devices from then on. While all of them
// are missing, Absent returns the reason.
//
// The error satisfies backend.ErrNoDevice on a host without the library, as most hosts are, and probe.ErrNotSupported on
// such a host or if its devices cannot count flows.
func New(ctx context.Context, o Options) (*Backend, error) {
	if o.Host != nil {
		return open(ctx, o, hostDevices{o.Host}, shm.Now)
	}
	if err := o.Guard.Library(); err != nil {
		return nil, fmt.Errorf("backend rdma: %w", err)
	}
	hw, err := openIBV(o)
	if err != nil {
		if errors.Is(err, probe.ErrNotSupported) {
			err = backend.NoDevice(err)
		}
		return nil, fmt.Errorf("backend rdma: %w", err)
	}
	b, err := open(ctx, o, hw, shm.Now)
	if err != nil {
		return nil, fmt.Errorf("backend rdma: %w", err)
	}
	return b, nil
}

// open opens the devices of hw, and closes hw with the backend or on error.
func open(ctx context.Context, o Options, hw hardware, now func() int64) (_ *Backend, err error) {
	b := &Backend{
		opts:        o,
		log:         o.Logger,
		now:         now,
		hw:          hw,
		pace:        newPacer(o.budget().commands()),
		changed:     make(chan struct{}, 1),
		closeBound:  backend.CloseBound,
		patterns:    o.Interfaces,
		entryByName: make(map[string]*entry),
		lastCookie:  rand.Uint64() | 1,
	}
	b.entryByID.Store(new([]atomic.Pointer[entry]))
	b.ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close(false))
		}
	}()

	if b.ns, err = backend.CurrentNetns(); err != nil {
		return nil, err
	}
	if _, err := b.follow(); err != nil {
		return nil, err
	}
	b.absent = b.openDevices()
	if b.absent != nil && !errors.Is(b.absent, backend.ErrNoDevice) {
		return nil, b.absent
	}
	b.running.Go(b.searchDevices)
	return b, nil
}

// CheckInterfaces implements backend.InterfaceSetter.
func (b *Backend) CheckInterfaces(list []dataplane.Interface) error {
	return backend.Patterns(list).CheckExist(b.ns)
}

// SetInterfaces implements backend.InterfaceSetter. It only changes the list: the engine sees the signal, and takes flows off
// the devices of other interfaces when it arranges them next.
func (b *Backend) SetInterfaces(list []dataplane.Interface) error {
	b.mu.Lock()
	was := b.patterns
	b.patterns = slices.Clone(list)
	b.mu.Unlock()

	if _, err := b.follow(); err != nil {
		b.mu.Lock()
		b.patterns = was
		b.mu.Unlock()
		return err
	}
	b.signal()
	return nil
}

// follow makes a device for each interface of the configuration that exists now. Devices of other interfaces are marked as
// leaving, and closeLeft closes them once no flow counts on them. changed reports whether there is any such change.
func (b *Backend) follow() (changed bool, err error) {
	b.mu.Lock()
	patterns := b.patterns
	b.mu.Unlock()

	list, err := patterns.Resolve(b.ns)
	if err != nil {
		return false, fmt.Errorf("listing the interfaces: %w", err)
	}
	for i, in := range list { // drop the mode, which only matters to XDP
		list[i] = dataplane.Interface{Name: in.Name, Direction: cmp.Or(in.Direction, dataplane.DirectionBoth)}
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || !slices.Equal(patterns, b.patterns) {
		return false, nil // whoever has changed the patterns meanwhile calls follow, too
	}
	for _, d := range b.devices {
		if !slices.Contains(list, d.counts) && !d.leaving {
			d.leaving = true
			changed = true
		}
	}
	for _, in := range list {
		stays := func(d *device) bool { return d.counts == in && !d.leaving }
		if !slices.ContainsFunc(b.devices, stays) {
			b.devices = append(b.devices, b.newDevice(in))
			changed = true
		}
	}
	return changed, nil
}

// newDevice returns the device of an interface. It is not open yet.
func (b *Backend) newDevice(in dataplane.Interface) *device {
	return &device{
		netdev: in.Name,
		counts: in,
		levels: [2]levelTable{newLevelTable(), newLevelTable()},
		now:    b.now,
		log:    b.log,
		signal: b.signal,
		stop:   func() {},
	}
}

// Name implements backend.Counters.
func (b *Backend) Name() string { return "rdma" }

// Absent implements backend.HardwareBackend.
func (b *Backend) Absent() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.absent == nil {
		return nil
	}
	var refused []error // of devices that exist
	for _, d := range b.devices {
		if d.refused != nil {
			refused = append(refused, d.refused.err)
		}
	}
	return fmt.Errorf("backend rdma: %w", cmp.Or(errors.Join(refused...), b.absent))
}

// devicesOf returns the devices that count a flow.
func (b *Backend) devicesOf(f flow.Flow) []*device {
	var out []*device
	for _, d := range b.devices {
		if !d.leaving && d.counts.Counts(f.Direction) && (f.Interface == "" || f.Interface == d.netdev) {
			out = append(out, d)
		}
	}
	return out
}

// Read implements Backend.
func (b *Backend) Read(ids []uint32, dst []backend.Pair) error {
	all := *b.entryByID.Load()
	for i, id := range ids {
		dst[i], _ = all[id].Load().value()
	}
	return nil
}

// ReadTimed implements TimedCounters.
func (b *Backend) ReadTimed(ids []uint32, dst []backend.Pair, at []int64) error {
	all := *b.entryByID.Load()
	for i, id := range ids {
		dst[i], at[i] = all[id].Load().value()
	}
	return nil
}

// value returns the sum over the devices and their stand-ins, and the time of the oldest sample in it.
func (f *entry) value() (sum backend.Pair, at int64) {
	at = math.MaxInt64 // stand-ins leave it as it is, but at least one device counts itself
	for _, p := range f.devices {
		v, t := p.value()
		sum = backend.Add(sum, v)
		at = min(at, t)
	}
	return sum, at
}

// Resets implements HardwareBackend.
func (b *Backend) Resets(f backend.Placed) (n uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if x := b.entryByName[f.Name]; x != nil {
		for _, p := range x.devices {
			n += p.sample.resets.Load()
		}
	}
	return n
}

// Source implements Backend.
func (b *Backend) Source(f backend.Placed) dataplane.Source {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.entryByName[f.Name]
	if x == nil {
		return dataplane.Source{Backend: "rdma"}
	}
	return x.source()
}

// source returns the devices that count the flow now.
func (f *entry) source() dataplane.Source {
	src := dataplane.Source{Backend: flow.RDMA}
	for _, p := range f.devices {
		if p.dev.down == nil && p.standIn == nil {
			src.Devices = append(src.Devices, dataplane.Device{Backend: flow.RDMA, Name: p.dev.name, Mode: p.mode})
		}
	}
	return src
}

// takes reports whether hardware keeps packets of the flow from the kernel.
func (f *entry) takes() bool {
	for _, p := range f.devices {
		if p.mode == dataplane.ModeDrop || p.mode == dataplane.ModeSteal || p.flow.Action == flow.Drop {
			return true
		}
	}
	return false
}

// signal wakes the receiver of Changed. It never blocks, so it may be called under any lock.
func (b *Backend) signal() {
	select {
	case b.changed <- struct{}{}:
	default: // one is pending
	}
}

// Changed implements Backend.
func (b *Backend) Changed() <-chan struct{} { return b.changed }

// RemoveStale implements backend.Backend. A dead process leaves nothing on a device.
func (b *Backend) RemoveStale(context.Context) error { return nil }

// Close ends the goroutines, then closes rules, pools and devices, in this order. It ignores keep, because rules and slots
// end with the process. It waits for slow firmware up to CloseBound, and leaves the remaining objects to the end of the
// process.
func (b *Backend) Close(bool) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	b.mu.Unlock()
	b.stop()
	done := make(chan error, 1)
	go func() { done <- b.takeDown() }()
	select {
	case err := <-done:
		return err
	case <-time.After(b.closeBound):
		return fmt.Errorf("backend rdma: devices are not closed after %v: their remaining objects end with the process", b.closeBound)
	}
}

// takeDown waits for the goroutines, then closes the devices, then the library under them.
func (b *Backend) takeDown() error {
	b.running.Wait()

	var errs []error
	for _, d := range b.devices {
		d.running.Wait()
		errs = append(errs, d.close())
	}
	errs = append(errs, b.hw.Close())
	if b.ns != nil {
		errs = append(errs, b.ns.Close())
	}
	return errors.Join(errs...)
}

// Conditions implements Backend.
func (b *Backend) Conditions() []dataplane.Condition {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	var out []dataplane.Condition
	for _, d := range b.devices {
		if !d.leaving {
			out = append(out, d.conditions()...)
		}
	}
	return out
}
