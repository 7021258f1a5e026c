package links

import (
	"context"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Watch streams changes of links in the network namespace of the calling thread until ctx ends; the
// channel is closed then, and, behind a Lost, when the kernel ends the subscription. It begins
// with the current state: one Added for every link and a Up for each that is up, so that no
// change between a listing of the links and the first event is missed.
func Watch(ctx context.Context) (<-chan Event, error) {
	updates := make(chan netlink.LinkUpdate, 64)
	err := netlink.LinkSubscribeWithOptions(updates, ctx.Done(), netlink.LinkSubscribeOptions{
		ListExisting: true, ReceiveBufferSize: 1 << 20, // a burst of links would end the subscription
	})
	if err != nil {
		return nil, fmt.Errorf("subscribing to links: %w", err)
	}
	events := make(chan Event, 64)
	go func() {
		defer close(events)
		w := watcher{known: map[int]linkState{}}
		for u := range updates {
			for _, e := range w.event(u) {
				select {
				case events <- e:
				case <-ctx.Done():
				}
			}
		}
		select {
		case events <- Event{Kind: Lost}:
		case <-ctx.Done():
		}
	}()
	return events, nil
}

// watcher turns states, which the kernel sends, into changes.
type watcher struct{ known map[int]linkState }

type linkState struct {
	name string
	up   bool
}

func (w *watcher) event(u netlink.LinkUpdate) []Event {
	a := u.Link.Attrs()
	old, known := w.known[a.Index]
	if u.Header.Type == unix.RTM_DELLINK {
		if !known {
			return nil
		}
		delete(w.known, a.Index)
		return []Event{{Kind: Removed, Name: old.name, Index: a.Index}}
	}
	// Carrier as well as the administrator's wish: a veth whose peer is down is down.
	now := linkState{name: a.Name, up: u.IfInfomsg.Flags&unix.IFF_RUNNING != 0}
	w.known[a.Index] = now
	var events []Event
	if !known {
		e := Event{Kind: Added, Name: now.name, Index: a.Index}
		if u.Link.Type() == "vlan" {
			e.VLANOf = a.ParentIndex
		}
		events = append(events, e)
	} else if old.name != now.name {
		events = append(events, Event{Kind: Renamed, Name: now.name, OldName: old.name, Index: a.Index})
	}
	switch {
	case now.up && !old.up:
		events = append(events, Event{Kind: Up, Name: now.name, Index: a.Index})
	case old.up && !now.up:
		events = append(events, Event{Kind: Down, Name: now.name, Index: a.Index})
	}
	return events
}
