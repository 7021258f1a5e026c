package rdma

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// fakeHost is a host whose RDMA devices are a few maps. It shows how the backend uses devices. How devices count packets is for
// the tests over the uverbs kernel in software.
type fakeHost struct {
	mu     sync.Mutex
	list   []portInfo
	nics   map[string]*fakeNIC // the last opened one by device
	shape  fakeNIC             // what the next opened devices are like
	opened int
	closed bool
}

func newFakeHost(netdevs ...string) *fakeHost {
	h := &fakeHost{nics: make(map[string]*fakeNIC), shape: fakeNIC{by: withDevX, bulk: 4}}
	for i, n := range netdevs {
		h.list = append(h.list, portInfo{name: fmt.Sprintf("fake%d", i), port: 1, netdev: n})
	}
	return h
}

func (h *fakeHost) devices() ([]portInfo, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.list), nil
}

func (h *fakeHost) open(i portInfo) (nic, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := &fakeNIC{by: h.shape.by, bulk: h.shape.bulk, dontTrap: h.shape.dontTrap, host: h, events: make(chan nicEvent, 4)}
	h.nics[i.name] = n
	h.opened++
	return n, nil
}

func (h *fakeHost) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for name, n := range h.nics {
		if !n.isClosed {
			return fmt.Errorf("closing the host: %s is open", name)
		}
	}
	return nil
}

func (h *fakeHost) nic(i int) *fakeNIC {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nics[fmt.Sprintf("fake%d", i)]
}

// fakeNIC remembers its rules, and refuses what rdma-core would refuse.
type fakeNIC struct {
	by       steeringAPI
	bulk     int
	dontTrap bool
	host     *fakeHost
	events   chan nicEvent

	mu        sync.Mutex
	rules     []*fakeRule
	bulks     int
	commands  int
	fail      error // of every query
	failRule  error
	failClose error                   // of every rule
	failEnd   error                   // of the device's own Close; EBUSY leaves the device open
	onRule    func(rules []*fakeRule) // after each change
	isClosed  bool
}

type fakeRule struct {
	rule
	nic  *fakeNIC
	bulk *fakeBulk
	slot int
}

type fakeBulk struct {
	nic    *fakeNIC
	values []backend.Pair
	bound  int
	closed bool
}

func (n *fakeNIC) steeringAPI() steeringAPI { return n.by }

func (n *fakeNIC) mode(d flow.Direction, a flow.Action) (dataplane.Mode, error) {
	switch {
	case !n.dontTrap:
		return dataplane.ModeDevX, nil
	case d == flow.Egress:
		return dataplane.ModeEgress, nil
	case a == flow.Drop:
		return dataplane.ModeDrop, nil
	}
	return dataplane.ModeDontTrap, nil
}

func (n *fakeNIC) newBulk() (bulk, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.bulks++
	return &fakeBulk{nic: n, values: make([]backend.Pair, n.bulk)}, nil
}

func (b *fakeBulk) slots() int         { return len(b.values) }
func (b *fakeBulk) startsAtZero() bool { return b.nic.by == withVerbs }

func (b *fakeBulk) query(dst []backend.Pair) error {
	b.nic.mu.Lock()
	defer b.nic.mu.Unlock()
	b.nic.commands++
	switch {
	case b.nic.fail != nil:
		return b.nic.fail
	case b.closed || b.startsAtZero() && b.bound == 0:
		return syscall.EINVAL
	}
	copy(dst, b.values)
	return nil
}

func (b *fakeBulk) queryFinal(dst []backend.Pair) error {
	b.nic.mu.Lock()
	b.bound++
	b.nic.mu.Unlock()
	defer func() {
		b.nic.mu.Lock()
		b.bound--
		b.nic.mu.Unlock()
	}()
	return b.query(dst)
}

func (b *fakeBulk) Close() error {
	b.nic.mu.Lock()
	defer b.nic.mu.Unlock()
	if slices.ContainsFunc(b.nic.rules, func(r *fakeRule) bool { return r.bulk == b }) {
		return syscall.EBUSY
	}
	if !b.closed {
		b.closed = true
		b.nic.bulks--
	}
	return nil
}

func (n *fakeNIC) addRule(r rule, b bulk, slot int) (io.Closer, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failRule != nil {
		return nil, n.failRule
	}
	x := &fakeRule{rule: r, nic: n, bulk: b.(*fakeBulk), slot: slot}
	x.bulk.bound++
	n.rules = append(n.rules, x)
	if n.onRule != nil {
		n.onRule(n.rules)
	}
	return x, nil
}

func (r *fakeRule) Close() error {
	r.nic.mu.Lock()
	defer r.nic.mu.Unlock()
	if r.nic.failClose != nil {
		return r.nic.failClose
	}
	i := slices.Index(r.nic.rules, r)
	if i < 0 {
		return errors.New("a rule was closed twice")
	}
	r.nic.rules = slices.Delete(r.nic.rules, i, i+1)
	r.bulk.bound--
	if r.nic.onRule != nil {
		r.nic.onRule(r.nic.rules)
	}
	return nil
}

func (n *fakeNIC) nextEvent(ctx context.Context) (nicEvent, error) {
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case e := <-n.events:
		return e, nil
	}
}

func (n *fakeNIC) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.rules) > 0 || n.bulks > 0 {
		return fmt.Errorf("closing a device with %d rules and %d bulks: %w", len(n.rules), n.bulks, syscall.EBUSY)
	}
	if n.isClosed {
		return nil
	}
	if errors.Is(n.failEnd, syscall.EBUSY) {
		return n.failEnd
	}
	n.isClosed = true
	return n.failEnd
}

// set sets the slot of the rule with a destination port to v.
func (n *fakeNIC) set(t *testing.T, port uint16, v backend.Pair) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.rules {
		if r.match.UDP != nil && r.match.UDP.Dst.Value == port {
			r.bulk.values[r.slot] = v
			return
		}
	}
	t.Fatalf("no rule for port %d", port)
}

func (n *fakeNIC) setFail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fail = err
}

// openFake opens the backend on a host. The test fails if it cannot be closed.
func openFake(t *testing.T, h *fakeHost, interfaces ...string) *Backend {
	t.Helper()
	o := Options{Interfaces: named(interfaces), Period: time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
	b, err := open(t.Context(), o, h, shm.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(false); err != nil {
			t.Error(err)
		}
	})
	return b
}

// named returns interfaces of these names.
func named(names []string) (list []dataplane.Interface) {
	for _, n := range names {
		list = append(list, dataplane.Interface{Name: n})
	}
	return list
}
