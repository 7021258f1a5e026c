package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/trial"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/dataplane/probe"
	"github.com/flowtally/flowtally/shm"
)

const defaultCommandsPerSecond = 10000

// rdmaBackend counts in the flow tables of RDMA devices. A flow on several interfaces
// is one counter on each of their devices, and their sum. Hardware is read by a goroutine per
// device, within the budget; ReadTimed answers what was read last. What the
// devices hold goes with the process: nothing can be kept.
type rdmaBackend struct {
	cfg     dataplane.Config
	log     *slog.Logger
	now     func() int64 // shm.Now; tests bring their own
	hw      hardware
	ns      *backend.Netns // where the interfaces are
	pace    *pacer
	changed chan struct{}
	bound   time.Duration   // CloseBound; tests are less patient
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	stopped sync.WaitGroup

	counters atomic.Pointer[[]atomic.Pointer[rdmaFlow]] // by ID; longer than they are

	mu      sync.Mutex
	devices []*rdmaDevice // of cfg.Interfaces, in their order
	flows   map[string]*rdmaFlow
	free    []uint32 // IDs
	ids     uint32   // given out so far
	cookie  uint64   // of the last flow; odd, so never 0
	none    error    // why no device was there yet; nil once one was
	closed  bool
}

// rdmaFlow is a flow that hardware counts, or has counted: its cells outlive its rules.
type rdmaFlow struct {
	backend.Placed
	id    uint32
	parts []*part
}

// newRDMABackend opens the library and the devices of the configured interfaces. Those that are
// not there are looked for; while none is, Absent says so. The error satisfies ErrNoDevice
// when there is no library: nothing that a host without RDMA has to be told. It satisfies
// probe.ErrNotSupported also when devices are there that cannot count flows.
func newRDMABackend(ctx context.Context, cfg dataplane.Config, log *slog.Logger, g *trial.Guard) (*rdmaBackend, error) {
	if err := g.Library(); err != nil {
		return nil, fmt.Errorf("backend rdma: %w", err)
	}
	hw, err := openIBV(cfg.RDMA, log, g)
	if err != nil {
		if errors.Is(err, probe.ErrNotSupported) {
			err = backend.NoDevice(err)
		}
		return nil, fmt.Errorf("backend rdma: %w", err)
	}
	b, err := openRDMA(ctx, cfg, log, hw, shm.Now)
	if err != nil {
		return nil, fmt.Errorf("backend rdma: %w", err)
	}
	return b, nil
}

// openRDMA takes hw over.
func openRDMA(ctx context.Context, cfg dataplane.Config, log *slog.Logger, hw hardware, now func() int64) (_ *rdmaBackend, err error) {
	cfg.Flows = nil // kept as long as the backend, which does not read them
	b := &rdmaBackend{
		cfg: cfg, log: log, now: now, hw: hw, bound: backend.CloseBound, changed: make(chan struct{}, 1),
		pace:  newPacer(cmp.Or(cfg.RDMA.CommandsPerSecond, defaultCommandsPerSecond)),
		flows: make(map[string]*rdmaFlow), cookie: rand.Uint64() | 1,
	}
	b.counters.Store(new([]atomic.Pointer[rdmaFlow]))
	b.ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close(false))
		}
	}()
	if b.ns, err = backend.CurrentNetns(); err != nil {
		return nil, err
	}
	for _, i := range cfg.Interfaces {
		b.devices = append(b.devices, &rdmaDevice{netdev: i.Name, sides: [2]side{newSide(), newSide()}, now: now, log: log, signal: b.signal, stop: func() {}})
	}
	if b.none = b.find(); b.none != nil && !errors.Is(b.none, backend.ErrNoDevice) {
		return nil, b.none
	}
	b.stopped.Go(b.look)
	return b, nil
}

func (b *rdmaBackend) Name() string { return "rdma" }

// Absent implements HardwareBackend.
func (b *rdmaBackend) Absent() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.none == nil {
		return nil
	}
	var refused []error // there are devices, then
	for _, d := range b.devices {
		if d.refused != nil {
			refused = append(refused, d.refused.err)
		}
	}
	return fmt.Errorf("backend rdma: %w", cmp.Or(errors.Join(refused...), b.none))
}

// on lists the devices that a flow is counted by.
func (b *rdmaBackend) on(f flow.Flow) []*rdmaDevice {
	var out []*rdmaDevice
	for _, d := range b.devices {
		if f.Interface == "" || f.Interface == d.netdev {
			out = append(out, d)
		}
	}
	return out
}

// Read implements Backend.
func (b *rdmaBackend) Read(ids []uint32, dst []backend.Pair) error {
	all := *b.counters.Load()
	for i, id := range ids {
		dst[i], _ = all[id].Load().value()
	}
	return nil
}

// ReadTimed implements TimedCounters.
func (b *rdmaBackend) ReadTimed(ids []uint32, dst []backend.Pair, at []int64) error {
	all := *b.counters.Load()
	for i, id := range ids {
		dst[i], at[i] = all[id].Load().value()
	}
	return nil
}

// value sums the devices and their stand-ins; it is as old as the oldest sample of a device.
func (f *rdmaFlow) value() (sum backend.Pair, at int64) {
	at = math.MaxInt64 // one part at least is sampled
	for _, p := range f.parts {
		v, t := p.value()
		sum, at = backend.Add(sum, v), min(at, t)
	}
	return sum, at
}

// Resets implements HardwareBackend.
func (b *rdmaBackend) Resets(f backend.Placed) (n uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if x := b.flows[f.Name]; x != nil {
		for _, p := range x.parts {
			n += p.cell.resets.Load()
		}
	}
	return n
}

// Source implements Backend.
func (b *rdmaBackend) Source(f backend.Placed) dataplane.Source {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.flows[f.Name]
	if x == nil {
		return dataplane.Source{Backend: "rdma"}
	}
	return x.source()
}

func (f *rdmaFlow) source() dataplane.Source {
	src := dataplane.Source{Backend: flow.RDMA}
	for _, p := range f.parts {
		if p.dev.down == nil && p.standIn == nil {
			src.Devices = append(src.Devices, dataplane.Device{Backend: flow.RDMA, Name: p.dev.name, Mode: dataplane.Mode(p.mode)})
		}
	}
	return src
}

// basis says what the bytes are. The software device counts L2 without FCS; of real ones
// no public source says whether VLAN tags and FCS are counted.
func (f *rdmaFlow) basis() string {
	for _, p := range f.parts {
		if p.dev.driver != "ibvtest" {
			return "unknown"
		}
	}
	return "l2"
}

// takes says that packets of the flow do not reach the kernel.
func (f *rdmaFlow) takes() bool {
	for _, p := range f.parts {
		if p.mode == modeDrop || p.mode == modeSteal || p.flow.Action == flow.Drop {
			return true
		}
	}
	return false
}

func (b *rdmaBackend) signal() {
	select {
	case b.changed <- struct{}{}:
	default: // one is pending
	}
}

// Changed implements Backend.
func (b *rdmaBackend) Changed() <-chan struct{} { return b.changed }

// Settle implements Backend: a dead process leaves nothing on a device.
func (b *rdmaBackend) Settle(context.Context) error { return nil }

// Close ends the goroutines, then takes rules, counters and devices down, in this order.
// Nothing can be kept: what a device holds goes with the process that made it. So what
// slow firmware has not taken down within CloseBound is left to that.
func (b *rdmaBackend) Close(bool) error {
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
	case <-time.After(b.bound):
		return fmt.Errorf("backend rdma: devices are not closed after %v: what they still hold goes with the process", b.bound)
	}
}

func (b *rdmaBackend) takeDown() error {
	b.stopped.Wait()
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
