package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/rdma"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// rack is the RDMA devices of the host.
type rack struct {
	mu    sync.Mutex
	cards map[string]*card // by interface
	step  func(what string)
	fault error // what no engine may do to a device
}

// card is one device. It counts packets before XDP sees those that arrive, and after XDP has seen those that leave.
type card struct {
	rack   *rack
	ifname string
	kind   string // "devx": the first match ends the search; "verbs": it goes on; "steal": the packets do not reach XDP

	absent     bool // it is not listed
	down       bool // its port
	unreadable bool
	room       int       // rules that it has room for
	open       *openCard // nil: no process has it open
	vanished   *openCard // a device that sends no event returns when its last handle was closed, as the kernel's rxe
}

// openCard is the handle that one process has of a card.
type openCard struct {
	card   *card
	gone   bool // with the process or with the device
	rules  []*cardRule
	events chan rdma.Event
}

type cardRule struct {
	rdma.Rule
	in   *cardCounters
	slot int
}

type cardCounters struct {
	of     *openCard
	values []backend.Pair
}

const cardSlots = 4 // of a card with DevX, so that flows share and outgrow one command

func newRack(step func(string)) *rack { return &rack{cards: make(map[string]*card), step: step} }

func (r *rack) add(ifname, kind string) {
	r.cards[ifname] = &card{rack: r, ifname: ifname, kind: kind, room: 1000}
}

// Ports implements rdma.Host.
func (r *rack) Ports() (list []rdma.Port) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, c := range r.cards {
		if !c.absent && c.vanished == nil {
			list = append(list, rdma.Port{Device: "card-" + name, Interface: name})
		}
	}
	slices.SortFunc(list, func(a, b rdma.Port) int { return cmp.Compare(a.Interface, b.Interface) })
	return list
}

// Open implements rdma.Host.
func (r *rack) Open(p rdma.Port) (rdma.Device, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.cards[p.Interface]
	if c.absent || c.vanished != nil {
		return nil, unix.ENODEV
	}
	if c.open != nil && !c.open.gone {
		r.fault = fmt.Errorf("the device of %s is open twice", c.ifname)
	}
	c.open = &openCard{card: c, events: make(chan rdma.Event, 16)}
	return c.open, nil
}

// killed ends what the process has on the devices.
func (r *rack) killed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.cards {
		c.end()
		c.vanished = nil
	}
}

// end ends the handle of a card, and its rules.
func (c *card) end() {
	if c.open != nil {
		c.open.gone, c.open.rules, c.open = true, nil, nil
	}
}

// do changes a card.
func (r *rack) do(verb, ifname string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.cards[ifname]
	if c == nil {
		return
	}
	tell := func(e rdma.Event) {
		if c.open != nil && len(c.open.events) < cap(c.open.events) {
			c.open.events <- e
		}
	}
	switch verb {
	case "lose":
		tell(rdma.DeviceFatal)
		c.absent = true
		c.end()
	case "vanish":
		c.absent = true
		if c.open != nil {
			c.vanished = c.open
		}
		c.end()
	case "return":
		c.absent = false
	case "down":
		c.down = true
		tell(rdma.PortDown)
	case "up":
		c.down = false
		tell(rdma.PortUp)
	case "unread", "read":
		c.unreadable = verb == "unread"
	case "full":
		c.room = 0
		if c.open != nil {
			c.room = len(c.open.rules)
		}
	case "empty":
		c.room = 1000
	case "reset":
		if c.open != nil {
			for _, x := range c.open.rules {
				x.in.values[x.slot] = backend.Pair{}
			}
		}
	}
}

// isDown reports whether no packet passes the port of an interface.
func (r *rack) isDown(ifname string) bool {
	c := r.cards[ifname]
	return c != nil && c.down
}

// pass hands a packet to the device of an interface. taken: it goes no further.
func (r *rack) pass(ifname string, egress bool, port uint16, bytes uint64) (counted, taken bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.cards[ifname]
	if c == nil || c.open == nil {
		return false, false
	}
	var hit []*cardRule
	for _, x := range c.open.rules {
		if (x.Direction == flow.Egress) == egress && x.Match.IPv6 == nil && matchesPort(x.Match, port) {
			hit = append(hit, x)
		}
	}
	slices.SortStableFunc(hit, func(a, b *cardRule) int { return cmp.Compare(a.Level, b.Level) })
	for i, x := range hit {
		if i > 0 && x.Level == hit[0].Level && (x.in != hit[0].in || x.slot != hit[0].slot) {
			r.fault = fmt.Errorf("the rules of two flows are on one level of the device of %s", ifname)
		}
	}
	for _, x := range hit {
		v := &x.in.values[x.slot]
		v.Packets, v.Bytes = v.Packets+1, v.Bytes+bytes
		fallsThrough := c.kind == "verbs" && !egress && !x.Drop
		if !fallsThrough {
			return true, x.Drop || c.kind == "steal" && !egress
		}
		counted = true
	}
	return counted, false
}

// Slots implements rdma.Device.
func (o *openCard) Slots() int {
	if o.card.kind == "devx" {
		return cardSlots
	}
	return 1
}

// Mode implements rdma.Device.
func (o *openCard) Mode(d flow.Direction, a flow.Action) (dataplane.Mode, error) {
	switch {
	case o.card.kind == "devx":
		return dataplane.ModeDevX, nil
	case d == flow.Egress && a == flow.Drop:
		return "", errors.New("verbs have no rule that drops sent packets")
	case d == flow.Egress:
		return dataplane.ModeEgress, nil
	case a == flow.Drop:
		return dataplane.ModeDrop, nil
	case o.card.kind == "steal":
		return dataplane.ModeSteal, nil
	}
	return dataplane.ModeDontTrap, nil
}

// command is called ahead of each command to the device.
func (o *openCard) command(what string) (unlock func(), err error) {
	o.card.rack.step(what)
	o.card.rack.mu.Lock()
	if o.gone {
		err = unix.EIO
	}
	return o.card.rack.mu.Unlock, err
}

// NewCounters implements rdma.Device.
func (o *openCard) NewCounters() (rdma.HardwareCounters, error) {
	unlock, err := o.command("new counters")
	defer unlock()
	return &cardCounters{of: o, values: make([]backend.Pair, o.Slots())}, err
}

// Query implements rdma.HardwareCounters.
func (c *cardCounters) Query(dst []backend.Pair) error {
	r := c.of.card.rack
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.of.gone || c.of.card.unreadable {
		return unix.EIO
	}
	copy(dst, c.values)
	return nil
}

func (c *cardCounters) Close() error { return nil }

// AddRule implements rdma.Device.
func (o *openCard) AddRule(r rdma.Rule, in rdma.HardwareCounters, slot int) (io.Closer, error) {
	unlock, err := o.command("add rule")
	defer unlock()
	if err != nil {
		return nil, err
	}
	if len(o.rules) >= o.card.room {
		return nil, unix.ENOMEM
	}
	x := &cardRule{Rule: r, in: in.(*cardCounters), slot: slot}
	o.rules = append(o.rules, x)
	return x, nil
}

// Close ends a rule.
func (x *cardRule) Close() error {
	o := x.in.of
	unlock, err := o.command("end rule")
	defer unlock()
	if i := slices.Index(o.rules, x); i >= 0 {
		o.rules = slices.Delete(o.rules, i, i+1)
	}
	return err
}

// NextEvent implements rdma.Device.
func (o *openCard) NextEvent(ctx context.Context) (rdma.Event, error) {
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case e := <-o.events:
		return e, nil
	}
}

// Close implements rdma.Device.
func (o *openCard) Close() error {
	r := o.card.rack
	r.mu.Lock()
	defer r.mu.Unlock()
	o.gone = true
	if o.card.open == o {
		o.card.open = nil
	}
	if o.card.vanished == o {
		o.card.vanished = nil
	}
	return nil
}
