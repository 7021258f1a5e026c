package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/xdp"
)

// sides counts flows by the side of the interface that they look at.
type sides struct {
	ingress, egress int
	tagged          int // of ingress: how many match a VLAN tag
}

// hookName is one hook of one interface.
type hookName struct {
	ifname string
	hook   xdp.Hook
}

func hookOf(f flow.Flow) xdp.Hook {
	if f.Direction == flow.Egress {
		return xdp.HookEgress
	}
	return xdp.HookIngress
}

// need adds n flows to those that need the hooks of f.
func (b *xdpBackend) need(f flow.Flow, n int) {
	d := b.demand[f.Interface]
	if f.Direction == flow.Egress {
		d.egress += n
	} else {
		d.ingress += n
		if len(f.Match.VLAN) > 0 {
			d.tagged += n
		}
	}
	b.demand[f.Interface] = d
}

// want is what the flows that are served need of an interface.
func (b *xdpBackend) want(name string) xdp.AttachOptions {
	all, own := b.demand[""], b.demand[name]
	return xdp.AttachOptions{Ingress: all.ingress+own.ingress > 0, Egress: all.egress+own.egress > 0}
}

// attach takes the hooks that are needed and were not asked for yet. An interface
// that is missing is noted and waited for, unless nothing was ever found:
// then it is the configuration that is wrong.
func (b *xdpBackend) attach() error {
	var absent []error
	found := b.adopted || b.settled
	for _, i := range b.cfg.Interfaces {
		want := b.want(i.Name)
		if want == (xdp.AttachOptions{}) || want == b.asked[i.Name] {
			found = found || b.asked[i.Name] != (xdp.AttachOptions{})
			continue
		}
		err := b.attachTo(i, want)
		switch {
		case err == nil:
			found = true
			delete(b.missing, i.Name)
		case errors.Is(err, xdp.ErrNotFound):
			absent = append(absent, err)
			b.letGo(i.Name, err)
		default:
			return err
		}
		b.asked[i.Name] = want
	}
	if !found {
		clear(b.asked)
		return errors.Join(absent...)
	}
	return nil
}

// attachTo takes hooks of one interface. What it holds already stays as it is.
func (b *xdpBackend) attachTo(i dataplane.Interface, o xdp.AttachOptions) error {
	o.Mode = map[dataplane.Mode]xdp.Mode{dataplane.ModeNative: xdp.ModeNative, dataplane.ModeGeneric: xdp.ModeGeneric}[i.Mode]
	o.Last = b.cfg.XDP.TCX == "last"
	err := b.ns.Do(func() error {
		done, err := b.rules.Attach(i.Name, o)
		for _, a := range done {
			if a.Fresh {
				delete(b.since, hookName{i.Name, a.Hook})
			}
			if len(a.Rejected) > 0 {
				b.rejected[i.Name] = errors.Join(a.Rejected...)
			}
		}
		return err
	})
	b.seeHeld()
	b.seeNeighbours()
	return translate(err) // it names the interface, the hook and the mode
}

// letGo notes why an interface is not counted on, and takes the programs off
// the one that had its name: under another name nobody asked to count on it.
func (b *xdpBackend) letGo(name string, why error) {
	b.missing[name] = why
	if err := b.rules.Detach(name); err != nil && !errors.Is(err, xdp.ErrNotFound) {
		b.log.Warn("letting go of a link that went", "interface", name, "err", err)
	}
	b.seeHeld()
}

// seeHeld looks at what is held now. A hook that was not held at the last look begins
// another stretch of counting.
func (b *xdpBackend) seeHeld() {
	b.held = b.rules.Attachments()
	for h := range b.since {
		if !b.has(h) {
			delete(b.since, h)
		}
	}
	for _, a := range b.held {
		if h := (hookName{a.Interface, a.Hook}); b.since[h] == 0 {
			b.takings++
			b.since[h] = b.takings
		}
	}
}

// reach says why a flow can match no frame of the interfaces that are held for it. One of several
// interfaces without Ethernet is no reason: the flow counts on the others.
func (b *xdpBackend) reach(f flow.Flow) error {
	if f.Match.Eth == nil && len(f.Match.VLAN) == 0 {
		return nil
	}
	var without []string
	for _, a := range b.held {
		if a.Hook != hookOf(f) || f.Interface != "" && f.Interface != a.Interface {
			continue
		}
		if !a.Layer3 {
			return nil
		}
		without = append(without, a.Interface)
	}
	if len(without) == 0 {
		return nil
	}
	return fmt.Errorf("flow %q: %w: it asks for an Ethernet header or a VLAN tag, and frames of %s begin with IP; leave out \"eth\" and \"vlan\"",
		f.Name, dataplane.ErrInvalid, strings.Join(without, " and "))
}

func (b *xdpBackend) has(h hookName) bool {
	return slices.ContainsFunc(b.held, func(a xdp.Attachment) bool { return a.Interface == h.ifname && a.Hook == h.hook })
}

// whole says whether every hook that is wanted on an interface is held.
func (b *xdpBackend) whole(name string) bool {
	want := b.want(name)
	return (!want.Ingress || b.has(hookName{name, xdp.HookIngress})) && (!want.Egress || b.has(hookName{name, xdp.HookEgress}))
}

// trim takes the programs off hooks that nobody needs. What a dead process held
// stays until Settle: who needs it is not known before.
func (b *xdpBackend) trim() error {
	if !b.settled {
		return nil
	}
	var errs []error
	for _, a := range slices.Clone(b.held) {
		want := b.want(a.Interface)
		if a.Hook == xdp.HookIngress && want.Ingress || a.Hook == xdp.HookEgress && want.Egress {
			continue
		}
		if err := b.rules.Detach(a.Interface, a.Hook); err != nil && !errors.Is(err, xdp.ErrNotFound) {
			errs = append(errs, fmt.Errorf("detaching from %s: %w", a.Interface, err))
		}
	}
	for _, i := range b.cfg.Interfaces {
		if want := b.want(i.Name); want == (xdp.AttachOptions{}) {
			delete(b.asked, i.Name)
			delete(b.missing, i.Name)
		} else if b.asked[i.Name] != (xdp.AttachOptions{}) {
			b.asked[i.Name] = want
		}
	}
	b.seeHeld()
	return errors.Join(errs...)
}

// Epoch implements SoftwareBackend.
func (b *xdpBackend) Epoch(f backend.Placed) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stretch(f.Flow)
}

// stretch is the latest taking of a hook that the flow's rules count on; 0 when one is not held.
func (b *xdpBackend) stretch(f flow.Flow) (latest uint64) {
	for _, i := range b.cfg.Interfaces {
		if f.Interface != "" && f.Interface != i.Name {
			continue
		}
		at := b.since[hookName{i.Name, hookOf(f)}]
		if at == 0 {
			return 0
		}
		latest = max(latest, at)
	}
	return latest
}
