package engine

import (
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

// updateSource finds out whether the source of a flow has changed where it is: a lost hook, reset counters, another link.
func (m *mover) updateSource(c *flowState) error {
	lost := c.offload != nil && c.gone != nil
	if u, ok := c.backend.(backend.SoftwareBackend); ok {
		if now := u.Epoch(c.Placed); c.missed || now != c.epoch {
			refused, counted := u.Refused(c.Placed)
			taken := c.epoch != 0 && c.epoch&^backend.Partial < now&^backend.Partial // it falls with an interface that goes
			gap, was := taken || c.missed && !refused, c.missed
			c.missed = refused && c.missed || counted && c.lostHook(now)
			if now != 0 {
				c.epoch = now
			}
			if gap {
				// The hook was lost or refused for a while, or counting moved between XDP and TCX.
				c.edit().source = c.backend.Source(c.Placed)
				m.sendMoved(c, "its hook was lost for a while, or counting moved between XDP and TCX", dataplane.Uncounted{Unknown: true})
			}
			if gap || c.missed != was {
				if err := m.writeContinuity(c, c.cookie(), c.base, gap); err != nil {
					return err
				}
			}
		}
	} else if n := m.resets(c); c.offload != nil && !lost && n != c.resets {
		c.resets = n
		m.noteNeedsAlign(c)
		c.past.Discontinuities++
		m.sendMoved(c, "a counter of its device was reset", dataplane.Uncounted{Unknown: true})
		return m.catalogue.SetContinuity(c.handle, c.past)
	} else if c.offload != nil && c.epoch != 0 && !m.shadowComplete(c) {
		// The shadow has missed packets: the total no longer follows from its count, also where the device is lost.
		if err := m.writeHardwareContinuity(c); err != nil {
			return err
		}
	}
	if lost {
		return nil
	}
	err, src := m.updateDivided(c), m.sourceOf(c)
	if err != nil || src.Equal(c.source) {
		return err
	}
	c.edit().source = src
	m.pending.send(dataplane.Event{Kind: dataplane.SourceChanged, Object: c.Name, Text: src.String()})
	return m.writeSource(c)
}

// updateDivided notes whether a hook was lost for a while on an interface where the shadow of a divided flow counts.
func (m *mover) updateDivided(c *flowState) error {
	if c.offload == nil {
		return nil
	}
	for i := range c.lost {
		a := &c.lost[i]
		now := m.stack.software.Epoch(c.On(a.name))
		if !a.active || now == 0 || now == a.epoch {
			continue
		}
		gap := a.epoch != 0
		if a.epoch = now; gap {
			if err := m.publishDivided(c, "its hook was lost for a while, or counting moved between XDP and TCX", true); err != nil {
				return err
			}
		}
	}
	return nil
}

// resets returns how often the hardware that counts a flow has reset its slots.
func (m *mover) resets(c *flowState) uint64 {
	if c.offload == nil || !c.offloaded {
		return 0
	}
	return m.stack.hardware.Resets(c.Placed)
}
