package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// Fits implements HardwareBackend.
func (b *rdmaBackend) Fits(f flow.Flow, above []backend.Placed, without []string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range b.on(f) {
		if slices.Contains(without, d.netdev) {
			continue
		}
		if err := d.fits(f, above); err != nil {
			return err
		}
	}
	return nil
}

// Gone implements HardwareBackend.
func (b *rdmaBackend) Gone() map[string]error {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make(map[string]error)
	if !slices.ContainsFunc(b.devices, (*rdmaDevice).losing) {
		return out
	}
	for name, f := range b.flows {
		for _, p := range f.parts {
			if err := p.gone(); err != nil {
				out[name] = err
				break
			}
		}
	}
	return out
}

// Install implements Backend. Nothing of an earlier process is found again. Every rule is a
// command, so it looks between them whether ctx has ended.
func (b *rdmaBackend) Install(ctx context.Context, flows []backend.Placed) (_ []backend.Installed, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errors.New("backend rdma: closed")
	}
	var made []*rdmaFlow
	defer func() {
		if err != nil {
			err = errors.Join(err, b.unmake(made))
		}
	}()
	for _, f := range flows {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("flow %q: %w", f.Name, err)
		}
		x := &rdmaFlow{Placed: f}
		made = append(made, x)
		for _, d := range b.on(f.Flow) {
			p, err := d.prepare(x)
			if err != nil {
				return nil, fmt.Errorf("flow %q: %w", f.Name, err)
			}
			x.parts = append(x.parts, p)
		}
		if len(x.parts) == 0 {
			return nil, fmt.Errorf("flow %q: interface %q: %w", f.Name, f.Interface, backend.ErrNoDevice)
		}
	}
	if err := b.baseline(made); err != nil {
		return nil, err
	}
	for _, x := range made {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("flow %q: %w", x.Name, err)
		}
		for _, p := range x.parts {
			if err := p.dev.start(p); err != nil {
				return nil, fmt.Errorf("flow %q: %w", x.Name, err)
			}
		}
	}
	if err := b.begin(made); err != nil {
		return nil, err
	}
	return b.publish(made), nil
}

// baseline reads the bulks that new flows share with what counted there before.
func (b *rdmaBackend) baseline(made []*rdmaFlow) error {
	for _, bank := range byBank(made) {
		parts := bank.parts
		if bank.cleared() {
			continue
		}
		slots := make([]int, len(parts))
		for i, p := range parts {
			slots[i] = p.slot
		}
		b.pace.charge(b.now())
		if err := bank.begin(slots); err != nil {
			return fmt.Errorf("flow %q: device %s: %w", parts[0].flow.Name, parts[0].dev.name, err)
		}
	}
	return nil
}

// begin has the reader read what is new. One counter of each device is read at once: a
// device whose counters cannot be read counts nothing that anybody sees.
func (b *rdmaBackend) begin(made []*rdmaFlow) error {
	tried := make(map[*rdmaDevice]bool)
	for _, bank := range byBank(made) {
		parts := bank.parts
		d := parts[0].dev
		if !tried[d] {
			tried[d] = true
			b.pace.charge(b.now())
			if _, err := bank.sample(b.now); err != nil {
				return fmt.Errorf("flow %q: device %s of %s: reading its counter: %w", parts[0].flow.Name, d.name, d.netdev, err)
			}
		}
		d.reader.add(bank.hwBank)
	}
	return nil
}

// occupied is a bank and those of some flows' parts that count in it.
type occupied struct {
	*hwBank
	parts []*part
}

// byBank lists the banks of flows, in the order in which they come.
func byBank(flows []*rdmaFlow) []occupied {
	var out []occupied
	at := make(map[*hwBank]int)
	for _, f := range flows {
		for _, p := range f.parts {
			if p.bank == nil {
				continue
			}
			i, ok := at[p.bank]
			if !ok {
				i = len(out)
				at[p.bank] = i
				out = append(out, occupied{hwBank: p.bank})
			}
			out[i].parts = append(out[i].parts, p)
		}
	}
	return out
}

// publish gives the flows their IDs.
func (b *rdmaBackend) publish(made []*rdmaFlow) []backend.Installed {
	out := make([]backend.Installed, len(made))
	for i, x := range made {
		if n := len(b.free); n > 0 {
			x.id, b.free = b.free[n-1], b.free[:n-1]
		} else {
			x.id = b.ids
			b.ids++
		}
		b.numbered(x)
		b.flows[x.Name] = x
		b.cookie += 2
		out[i] = backend.Installed{ID: x.id, Cookie: b.cookie, Source: x.source(), Basis: x.basis(), Takes: x.takes()}
	}
	return out
}

// numbered publishes a flow under its ID, for Read. The slice doubles when it is full. A reader that still
// holds the old slice has no ID that only the new one holds.
func (b *rdmaBackend) numbered(x *rdmaFlow) {
	all := *b.counters.Load()
	if int(x.id) >= len(all) {
		more := make([]atomic.Pointer[rdmaFlow], max(64, 2*len(all)))
		for i := range all {
			more[i].Store(all[i].Load())
		}
		all = more
		b.counters.Store(&all)
	}
	all[x.id].Store(x)
}

// Remove implements Backend. The counters are read once more after their rules have gone.
func (b *rdmaBackend) Remove(_ context.Context, flows []backend.Placed) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var gone []*rdmaFlow
	for _, f := range flows {
		if x := b.flows[f.Name]; x != nil {
			gone = append(gone, x)
			delete(b.flows, f.Name)
			b.free = append(b.free, x.id)
		}
	}
	if err := errors.Join(b.end(gone), b.last(gone)); err != nil {
		b.log.Error("removing flows from hardware", "err", err)
	}
	b.release(gone)
	return nil
}

// unmake takes back what an Install that fails has made.
func (b *rdmaBackend) unmake(flows []*rdmaFlow) error {
	err := b.end(flows)
	b.release(flows)
	return err
}

// end takes the rules of flows out. What the device refuses to destroy goes when it is closed.
func (b *rdmaBackend) end(flows []*rdmaFlow) error {
	var errs []error
	for _, x := range flows {
		for _, p := range x.parts {
			if err := p.dev.end(p); err != nil {
				errs = append(errs, fmt.Errorf("flow %q: ending its rules: %w", x.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// last reads what flows have counted to the end, their rules being gone.
func (b *rdmaBackend) last(flows []*rdmaFlow) error {
	var errs []error
	for _, bank := range byBank(flows) {
		parts := bank.parts
		if parts[0].dev.dead() {
			continue
		}
		b.pace.charge(b.now())
		if err := bank.sampleLast(b.now); err != nil {
			errs = append(errs, fmt.Errorf("flow %q: reading its counter at the end: %w", parts[0].flow.Name, err))
		}
	}
	return errors.Join(errs...)
}

// release gives the counters of flows back.
func (b *rdmaBackend) release(flows []*rdmaFlow) {
	for _, x := range flows {
		for _, p := range x.parts {
			p.dev.release(p)
		}
	}
}
