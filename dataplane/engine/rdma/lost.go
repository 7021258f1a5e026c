package rdma

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

// Besides backend.ErrDeviceLost, device.down can be one of these.
var (
	errPortDown  = errors.New("its port is down")                    // the rules stay, and count again when the port is up
	errRuleStuck = errors.New("a rule could not be taken out of it") // it hides the rules below it
)

// failure is why we do not use a device for a while, and since when.
type failure struct {
	err error
	at  int64
}

// distrust is how long we do not use a device after it was refused, or after its slots could not be read.
const distrust = 30 * time.Second

// Gone implements backend.HardwareBackend.
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

// Lost implements backend.HardwareBackend.
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
				return nil // the rules may still count there, so a stand-in would count twice
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

// mayHaveLost reports whether some flow of the device may have a lossReason. It saves Gone the walk over all flows.
func (d *device) mayHaveLost() bool {
	return d.working() != nil || d.reader.anyGivenUp()
}

// lossReason returns why a device does not count a flow any more, or nil. With a stand-in nothing is lost.
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
