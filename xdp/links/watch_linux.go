package links

import (
	"context"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Watch streams changes of links in the network namespace of the calling thread. It begins with the current state, as an Added for
// every link and an Up for each link that is up. So callers need no separate List, and miss no change.
//
// The channel is closed when ctx ends. It is also closed after a Lost, when the kernel ends the subscription.
func Watch(ctx context.Context) (<-chan Event, error) {
	updates := make(chan netlink.LinkUpdate, 64)
	err := netlink.LinkSubscribeWithOptions(updates, ctx.Done(), netlink.LinkSubscribeOptions{
		ListExisting:      true,
		ReceiveBufferSize: 1 << 20, // with the default, a burst of new links would end the subscription
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

// List returns the links in the network namespace of the calling thread, by index. It needs no privilege.
func List() (map[int]Link, error) {
	found, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("listing the links: %w", err)
	}
	all := make(map[int]Link, len(found))
	for _, l := range found {
		all[l.Attrs().Index] = linkOf(l)
	}
	return all, nil
}

func linkOf(l netlink.Link) Link {
	a := l.Attrs()
	link := Link{
		Index:           a.Index,
		Name:            a.Name,
		Kind:            l.Type(),
		Master:          a.MasterIndex,
		Parent:          a.ParentIndex,
		ParentElsewhere: a.NetNsID >= 0,
	}
	if link.Kind == "device" { // the library's word for a link without a kind
		link.Kind = ""
	}
	if vxlan, is := l.(*netlink.Vxlan); is && link.Parent == 0 {
		link.Parent = vxlan.VtepDevIndex // the kernel does not send it as IFLA_LINK
	}
	return link
}

// watcher turns messages about the state of links into changes.
type watcher struct{ known map[int]linkState }

type linkState struct {
	Link
	up bool
}

func (w *watcher) event(u netlink.LinkUpdate) []Event {
	// A bridge also sends messages about its ports. Its RTM_DELLINK means only that a port has left the bridge. Another message,
	// with the new master, follows.
	if u.IfInfomsg.Family == unix.AF_BRIDGE {
		return nil
	}

	link := linkOf(u.Link)
	old, known := w.known[link.Index]
	if u.Header.Type == unix.RTM_DELLINK {
		if !known {
			return nil
		}
		delete(w.known, link.Index)
		return []Event{{Kind: Removed, Name: old.Name, Index: link.Index}}
	}

	// IFF_RUNNING also needs a carrier. A veth whose peer is down counts as down.
	now := linkState{link, u.IfInfomsg.Flags&unix.IFF_RUNNING != 0}
	w.known[link.Index] = now

	var events []Event
	note := func(kind Kind, oldName string) {
		events = append(events, Event{Kind: kind, Name: now.Name, OldName: oldName, Index: link.Index, Link: link})
	}
	switch {
	case !known:
		note(Added, "")
	case old.Name != now.Name:
		note(Renamed, old.Name)
	}
	if known && (old.Master != now.Master || old.Parent != now.Parent || old.ParentElsewhere != now.ParentElsewhere) {
		note(Restacked, "")
	}
	switch {
	case now.up && !old.up:
		note(Up, "")
	case old.up && !now.up:
		note(Down, "")
	}
	return events
}
