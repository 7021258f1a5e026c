package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/xdp"
)

// attach takes the hooks that the flows need and that are not taken yet, on every interface.
func (b *xdpBackend) attach(flows []Placed) error {
	want := b.hooks
	for _, f := range flows {
		want.Ingress = want.Ingress || f.Direction == flow.Ingress
		want.Egress = want.Egress || f.Direction == flow.Egress
	}
	if want == b.hooks {
		return nil
	}
	for _, i := range b.cfg.Interfaces {
		err := b.attachTo(i, want)
		switch {
		case err == nil:
			delete(b.missing, i.Name)
		case errors.Is(err, xdp.ErrNotFound) && b.adopted:
			// It was there when the pins were made: it may come back, and
			// counting elsewhere must not wait for it.
			b.missing[i.Name] = err
		default:
			return err
		}
	}
	b.hooks = want
	return nil
}

func (b *xdpBackend) attachTo(i dataplane.Interface, o xdp.AttachOptions) error {
	o.Mode = map[string]xdp.Mode{"native": xdp.ModeNative, "generic": xdp.ModeGeneric}[i.Mode]
	if _, err := b.rules.Attach(i.Name, o); err != nil {
		return translate(err) // it names the interface, the hook and the mode
	}
	return nil
}

// watch follows the links until Close.
func (b *xdpBackend) watch() error {
	ctx, stop := context.WithCancel(context.Background())
	events, err := xdp.Watch(ctx)
	if err != nil {
		stop()
		return fmt.Errorf("watching links: %w", translate(err))
	}
	b.stop = stop
	b.stopped.Go(func() {
		for ev := range events {
			b.onLink(ev)
		}
	})
	return nil
}

// onLink attaches again to a configured interface that came back, and lets go
// of one that went. A flap needs nothing: programs stay attached.
func (b *xdpBackend) onLink(ev xdp.LinkEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	for _, i := range b.cfg.Interfaces {
		switch {
		case ev.Kind == xdp.LinkRemoved && ev.Name == i.Name, ev.Kind == xdp.LinkRenamed && ev.OldName == i.Name:
			b.missing[i.Name] = fmt.Errorf("interface %s: %s", i.Name, gone(ev))
			if err := b.rules.Detach(i.Name); err != nil && !errors.Is(err, xdp.ErrNotFound) {
				b.log.Warn("letting go of a link that went", "interface", i.Name, "err", err)
			}
		case ev.Kind == xdp.LinkAdded && ev.Name == i.Name, ev.Kind == xdp.LinkRenamed && ev.Name == i.Name:
			if err := b.attachTo(i, b.hooks); err != nil {
				b.missing[i.Name] = err
				b.log.Error("attaching to a link that came back", "interface", i.Name, "err", err)
			} else {
				delete(b.missing, i.Name)
			}
		default:
			continue
		}
		b.signal()
	}
}

func gone(ev xdp.LinkEvent) string {
	if ev.Kind == xdp.LinkRenamed {
		return "was renamed to " + ev.Name
	}
	return "was removed"
}

func (b *xdpBackend) signal() {
	select {
	case b.changed <- struct{}{}:
	default: // one is pending
	}
}

func (b *xdpBackend) Changed() <-chan struct{} { return b.changed }

// Conditions lists interfaces that are not counted on, and those that are counted
// on in a way that costs more or sees less.
func (b *xdpBackend) Conditions() []dataplane.Condition {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	var out []dataplane.Condition
	for name, err := range b.missing {
		out = append(out, dataplane.Condition{
			Code: "interface-missing", Severity: dataplane.High, Object: name, Text: err.Error(),
			Fix: "bring the interface back; counting on it goes on by itself",
		})
	}
	for _, a := range b.rules.Attachments() {
		if a.Mode != "generic" {
			continue
		}
		var why []string
		for _, err := range a.Rejected {
			why = append(why, err.Error())
		}
		text := "counted by generic XDP, which is slower and on virtual links sees segments that were merged"
		if len(why) > 0 {
			text += ": " + strings.Join(why, "; ")
		}
		out = append(out, dataplane.Condition{
			Code: "xdp-generic", Severity: dataplane.Medium, Object: a.Interface, Text: text,
			Fix: "use a driver with native XDP, or turn off TSO and GSO of the sender: ethtool -K PEER tso off gso off",
		})
	}
	return out
}
