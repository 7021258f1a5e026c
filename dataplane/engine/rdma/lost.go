package rdma

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

// Reasons of device.down beside backend.ErrDeviceLost.
var (
	errPortDown  = errors.New("its port is down")                    // the rules stay, and count again when it is up
	errRuleStuck = errors.New("a rule could not be taken out of it") // and hides the rules below it
)

// failure is why a device is not used for a while, and since when.
type failure struct {
	err error
	at  int64
}

// distrust is the time during which no flow goes to a device whose slots could not be read.
const distrust = 30 * time.Second

// Gone implements HardwareBackend.
func (b *Backend) Gone() map[string]error {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make(map[string]error)
	if !slices.ContainsFunc(b.devices, (*device).mayHaveLost) {
		return out
	}
	for name, f := range b.entryByName {
		for _, p := range f.devices {
			if err := p.lossReason(); err != nil {
				out[name] = err
				break
			}
		}
	}
	return out
}

// Lost implements HardwareBackend.
func (b *Backend) Lost(f backend.Placed) (lost []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	living := false
	if x := b.entryByName[f.Name]; x != nil {
		for _, p := range x.devices {
			switch {
			case p.standIn != nil:
			case p.dev.dead() || errors.Is(p.dev.down, errPortDown):
				lost = append(lost, p.dev.netdev)
			case p.lossReason() != nil:
				return nil // its rules may still count
			default:
				living = true
			}
		}
	}
	if !living {
		return nil
	}
	return lost
}

// mayHaveLost reports whether some flow of the device may not be counted any more; see deviceFlow.lossReason.
func (d *device) mayHaveLost() bool {
	return d.working() != nil || d.reader.anyGivenUp()
}

// lossReason returns why a flow is not counted on its device any more, or nil.
func (p *deviceFlow) lossReason() error {
	if p.standIn != nil {
		return nil
	}
	if err := p.dev.working(); err != nil {
		return err
	}
	if p.pool == nil {
		return nil
	}
	if err := p.dev.reader.givenUp(p.pool); err != nil {
		return fmt.Errorf("device %s of %s: %w: %w", p.dev.name, p.dev.netdev, backend.ErrUnread, err)
	}
	return nil
}
