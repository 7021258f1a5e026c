package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// host is a bench with further interfaces in the namespace that is counted in.
type host struct {
	*bench
	e    *Engine
	sent backend.Pair // the total that the flow "a" must reach
}

// plug makes an interface of that name.
func (h *host) plug(t *testing.T, name string) *lab.Pair {
	t.Helper()
	p, err := lab.NewPair(h.wire.Near.NS, h.wire.Far.NS, name, lab.Unique("f"), lab.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// sendTo sends n packets of the flow "a" to an interface, and of every protocol that no flow matches.
func (h *host) sendTo(t *testing.T, far *lab.End, n uint64) backend.Pair {
	t.Helper()
	s, err := far.NewSender([]lab.Stream{{Frames: [][]byte{udpTo(1001, 60)}}, {Frames: [][]byte{udpTo(1002, 60)}}}, lab.SenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := errors.Join(s.Run(t.Context(), 2*n), s.Settle(t.Context())); err != nil {
		t.Fatal(err)
	}
	return backend.Pair(s.Sent()[0])
}

// counted sends to an interface, and checks that every packet is counted.
func (h *host) counted(t *testing.T, far *lab.End) {
	t.Helper()
	h.sent = backend.Add(h.sent, h.sendTo(t, far, 1000))
	await(t, reader(t, h.cfg), "a", h.sent)
}

// devices waits until a flow is counted on these interfaces.
func (h *host) devices(t *testing.T, name string, want ...string) {
	t.Helper()
	slices.Sort(want)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		all, err := h.e.Placements(t.Context(), name)
		if err != nil || len(all) != 1 {
			t.Fatalf("%v, %v", all, err)
		}
		var got []string
		for _, d := range all[0].Source.Devices {
			got = append(got, d.Name)
		}
		slices.Sort(got)
		if slices.Equal(got, want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("flow %s is counted on %q, want %q", name, got, want)
		}
	}
}

// condition waits until a condition of the code is raised for the object, or is gone.
func (h *host) condition(t *testing.T, raised bool, code dataplane.ConditionCode, object string) (c dataplane.Condition) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		all, err := h.e.Conditions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(all, func(c dataplane.Condition) bool { return c.Code == code && c.Object == object })
		if raised && i >= 0 {
			return all[i]
		}
		if !raised && i < 0 {
			return c
		}
		if time.Now().After(end) {
			t.Fatalf("conditions are %+v, want %s for %s: %v", all, code, object, raised)
		}
	}
}

func (h *host) discontinuities() uint64 {
	h.e.ctl.Lock()
	defer h.e.ctl.Unlock()
	return h.e.flows["a"].past.Discontinuities
}

// newHost starts an instance that counts on interfaces of these entries. The interface "first" exists.
func newHost(t *testing.T, change func(*dataplane.Config), list ...dataplane.Interface) *host {
	t.Helper()
	h := &host{bench: newBench(t, "native", flow.Flow{Name: "a", Match: match(t, "udp dport 1001")})}
	h.cfg.Interfaces = list
	if change != nil {
		change(&h.cfg)
	}
	return h
}

func refuseBeside(c *dataplane.Config) { c.XDP.Beside = []dataplane.Beside{dataplane.BesideRefuse} }

func (h *host) run(t *testing.T) { h.e = h.start(t) }

// A pattern takes the interfaces that exist, those that are made or renamed later, and one that is deleted and made
// again. Each packet that is sent after the interface was taken is counted, and the total has no discontinuity.
func TestAPatternTakesLaterInterfaces(t *testing.T) {
	h := newHost(t, func(c *dataplane.Config) {
		c.Flows = append(c.Flows, flow.Flow{Name: "own", Match: match(t, "udp dport 1002"), Interface: "eth1", Priority: 1})
	}, dataplane.Interface{Name: "eth*"})
	eth0 := h.plug(t, "eth0")
	other := h.plug(t, "other0")
	h.run(t)
	h.devices(t, "a", "eth0")
	h.counted(t, eth0.B)
	eth1 := h.plug(t, "eth1")
	h.devices(t, "a", "eth0", "eth1")
	h.devices(t, "own", "eth1")
	h.counted(t, eth1.B)
	h.counted(t, eth0.B)
	h.sendTo(t, other.B, 1000) // no entry matches it
	h.counted(t, eth0.B)

	if err := eth1.Close(); err != nil {
		t.Fatal(err)
	}
	h.devices(t, "a", "eth0")
	h.counted(t, eth0.B)
	eth1 = h.plug(t, "eth1")
	h.devices(t, "a", "eth0", "eth1")
	h.counted(t, eth1.B)
	if n := h.discontinuities(); n != 0 {
		t.Errorf("%d discontinuities, want 0", n)
	}

	rename(t, other.A, "eth2")
	h.devices(t, "a", "eth0", "eth1", "eth2")
	h.counted(t, other.B)
	rename(t, other.A, "other0")
	h.devices(t, "a", "eth0", "eth1")
	h.sendTo(t, other.B, 1000)
	h.counted(t, eth1.B)
	t.Logf("%d packets sent to interfaces of the pattern, %d counted", h.sent.Packets, h.sent.Packets)
}

// rename gives an interface another name.
func rename(t *testing.T, e *lab.End, name string) {
	t.Helper()
	if err := e.Rename(name); err != nil {
		t.Fatal(err)
	}
}

// An interface of a pattern gets another name that the pattern matches too. Its packets pass uncounted until the instance has
// attached under the new name.
func TestAPatternKeepsARenamedInterface(t *testing.T) {
	h := newHost(t, nil, dataplane.Interface{Name: "eth*"})
	eth0 := h.plug(t, "eth0")
	h.run(t)
	h.devices(t, "a", "eth0")
	h.counted(t, eth0.B)
	rename(t, eth0.A, "eth7")
	h.devices(t, "a", "eth7")
	h.counted(t, eth0.B)
	lab.Eventually(t, "the discontinuity", func() bool { return h.discontinuities() == 1 })
}

// A host without optional interfaces counts, and takes them when they come. A pattern that is not optional and that no
// interface matches is a condition, and an error where no interface is left.
func TestOptionalInterfacesAreTakenWhenTheyCome(t *testing.T) {
	h := newHost(t, nil, dataplane.Interface{Name: "eth0", Optional: true}, dataplane.Interface{Name: "wlan*", Optional: true})
	h.run(t)
	h.devices(t, "a")
	eth0 := h.plug(t, "eth0")
	h.devices(t, "a", "eth0")
	h.counted(t, eth0.B)
	if c, err := h.e.Conditions(t.Context()); err != nil || len(c) != 0 {
		t.Errorf("conditions %+v, %v: the missing interfaces are optional", c, err)
	}
	if err := h.e.Close(); err != nil {
		t.Fatal(err)
	}
	h.cfg.Interfaces = []dataplane.Interface{{Name: "wlan*"}}
	err := h.wire.Near.NS.Do(func() error {
		_, err := New(context.Background(), h.cfg, Options{})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "no interface matches the pattern") {
		t.Errorf("started with a pattern that nothing matches: %v", err)
	}
	h.cfg.Interfaces = []dataplane.Interface{{Name: "wlan*"}, {Name: "eth0"}}
	h.sent = backend.Pair{}
	h.cfg.Mirror.Path += "2"
	h.run(t)
	c := h.condition(t, true, dataplane.CodeInterfaceMissing, "wlan*")
	lab.Step(t, c.Fix, "make an interface that matches it")
	h.plug(t, "wlan0")
	h.condition(t, false, dataplane.CodeInterfaceMissing, "wlan*")
}

// An interface counts flows of its direction alone.
func TestAnInterfaceCountsFlowsOfItsDirectionAlone(t *testing.T) {
	need.TCX(t)
	h := newHost(t, func(c *dataplane.Config) {
		c.Flows = append(c.Flows, flow.Flow{Name: "out", Match: match(t, "udp"), Direction: flow.Egress})
	}, dataplane.Interface{Name: "eth0", Direction: dataplane.DirectionIngress}, dataplane.Interface{Name: "eth1", Direction: dataplane.DirectionEgress})
	eth0, eth1 := h.plug(t, "eth0"), h.plug(t, "eth1")
	h.run(t)
	h.devices(t, "a", "eth0")
	h.devices(t, "out", "eth1")
	h.sendTo(t, eth1.B, 1000)
	h.counted(t, eth0.B)
	_, err := h.e.AddFlows(t.Context(), flow.Flow{Name: "no", Match: match(t, "tcp"), Interface: "eth1"})
	if !errors.Is(err, dataplane.ErrInvalid) {
		t.Errorf("a flow of a direction that its interface does not count: %v", err)
	}
	if err := h.setInterfaces(t, "eth0", "eth1"); err != nil {
		t.Fatal(err)
	}
	h.devices(t, "a", "eth0", "eth1")
	h.devices(t, "out", "eth0", "eth1")
	h.counted(t, eth1.B)
}

// setInterfaces changes the interfaces of the instance, and no flow.
func (h *host) setInterfaces(t *testing.T, names ...string) error {
	file := h.cfg
	file.Flows, file.Interfaces = nil, nil
	for _, n := range names {
		file.Interfaces = append(file.Interfaces, dataplane.Interface{Name: n})
	}
	_, err := h.e.SetFlows(t.Context(), nil, dataplane.SetOptions{KeepOthers: true, Config: &file})
	return err
}

// The interfaces of a running instance change, all or none, and no packet of those that stay is lost.
func TestSetInterfacesChangesAllOrNone(t *testing.T) {
	h := newHost(t, refuseBeside, dataplane.Interface{Name: "eth0"})
	eth0, eth1, eth2 := h.plug(t, "eth0"), h.plug(t, "eth1"), h.plug(t, "eth2")
	occupy(t, eth2.A)
	h.run(t)
	h.counted(t, eth0.B)
	set := func(names ...string) error { return h.setInterfaces(t, names...) }
	stop := make(chan struct{})
	passed := make(chan backend.Pair)
	go func() { // traffic over all of the changes
		var sum backend.Pair
		defer func() { passed <- sum }()
		for {
			select {
			case <-stop:
				return
			default:
				sum = backend.Add(sum, h.sendTo(t, eth0.B, 200))
			}
		}
	}()
	for range 10 {
		if err := set("eth0", "eth1"); err != nil {
			t.Fatal(err)
		}
		h.devices(t, "a", "eth0", "eth1")
		h.sent = backend.Add(h.sent, h.sendTo(t, eth1.B, 100))
		if err := set("eth[02]"); err == nil || !strings.Contains(err.Error(), "foreign") {
			t.Fatalf("an interface that is taken: %v", err)
		}
		h.devices(t, "a", "eth0", "eth1")
		h.sent = backend.Add(h.sent, h.sendTo(t, eth1.B, 100))
		if err := set("eth0"); err != nil {
			t.Fatal(err)
		}
		h.devices(t, "a", "eth0")
		h.sendTo(t, eth1.B, 100)
	}
	close(stop)
	h.sent = backend.Add(h.sent, <-passed)
	await(t, reader(t, h.cfg), "a", h.sent)
	if n := h.discontinuities(); n != 0 {
		t.Errorf("%d discontinuities, want 0", n)
	}
	t.Logf("%d packets over 30 changes, all counted", h.sent.Packets)
	for _, bad := range [][]string{{}, {"a/b"}, {"eth0", "eth0"}, {"eth["}} {
		if err := set(bad...); !errors.Is(err, dataplane.ErrInvalid) {
			t.Errorf("%q: %v, want ErrInvalid", bad, err)
		}
	}
	if _, err := h.e.AddFlows(t.Context(), flow.Flow{Name: "own", Match: match(t, "udp dport 9"), Interface: "eth0"}); err != nil {
		t.Fatal(err)
	}
	if err := set("eth1"); !errors.Is(err, dataplane.ErrInvalid) || !strings.Contains(err.Error(), "own") {
		t.Errorf("a list without the interface of a flow: %v", err)
	}
	if list, err := h.e.Interfaces(t.Context()); err != nil || len(list) != 1 || list[0].Name != "eth0" {
		t.Errorf("interfaces %v, %v", list, err)
	}
}

// The interfaces of a file change with its flows, all or none.
func TestAChangeByAFileIsUndoneWithItsInterfaces(t *testing.T) {
	h := newHost(t, refuseBeside, dataplane.Interface{Name: "eth0"})
	eth0, eth1, eth2 := h.plug(t, "eth0"), h.plug(t, "eth1"), h.plug(t, "eth2")
	occupy(t, eth2.A)
	h.run(t)
	h.counted(t, eth0.B)
	apply := func(list []dataplane.Interface, flows ...flow.Flow) (string, error) {
		file := h.cfg
		file.Flows, file.Interfaces = nil, list
		d, err := h.e.SetFlows(t.Context(), append(slices.Clone(h.cfg.Flows), flows...), dataplane.SetOptions{Config: &file})
		return d.String(), err
	}
	own := func(ifname string) flow.Flow {
		return flow.Flow{Name: "own", Match: match(t, "udp dport 1002"), Interface: ifname, Priority: 1}
	}
	// Each error leaves everything as it was.
	for _, c := range []struct {
		list []dataplane.Interface
		flow flow.Flow
		is   error
	}{
		{[]dataplane.Interface{{Name: "eth0"}, {Name: "eth2"}}, own("eth0"), nil},
		{[]dataplane.Interface{{Name: "eth0"}, {Name: "eth1"}}, flow.Flow{Name: "own", Backend: flow.RDMA}, dataplane.ErrUnplaced},
		{[]dataplane.Interface{{Name: "eth1"}}, own("eth0"), dataplane.ErrInvalid},
		{nil, own(""), dataplane.ErrInvalid},
	} {
		if _, err := apply(c.list, c.flow); err == nil || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%v: %v, want %v", c.list, err, c.is)
		}
		h.devices(t, "a", "eth0")
		if list, err := h.e.Interfaces(t.Context()); err != nil || len(list) != 1 {
			t.Errorf("interfaces %v, %v", list, err)
		}
		h.sendTo(t, eth1.B, 100)
		h.counted(t, eth0.B)
	}
	text, err := apply([]dataplane.Interface{{Name: "eth1"}, {Name: "wlan*", Optional: true}}, own("eth1"))
	if err != nil || text != "~ setting interfaces: [eth0] -> [eth1, wlan* optional]\n+ own\n" {
		t.Errorf("%q, %v", text, err)
	}
	h.devices(t, "a", "eth1")
	h.devices(t, "own", "eth1")
	h.sendTo(t, eth0.B, 100)
	h.counted(t, eth1.B)
}

// Interfaces that a pattern matches come and go faster than they are taken, some with names that a shell or a terminal would
// obey. They leave no pin and no condition, the others are counted on meanwhile, and a later one is taken.
func TestManyInterfacesThatComeAndGoLeaveNothing(t *testing.T) {
	const n = 60
	h := newHost(t, nil, dataplane.Interface{Name: "eth0"}, dataplane.Interface{Name: "[^lfn]*", Optional: true})
	eth0 := h.plug(t, "eth0")
	h.run(t)
	h.devices(t, "a", "eth0")
	add := func(name string) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		veth := netlink.NewVeth(attrs)
		veth.PeerName = lab.Unique("f")
		if err := netlink.LinkAdd(veth); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	remove := func(name string) {
		l, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkDel(l)
		}
		if err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	err := h.wire.Near.NS.Do(func() error {
		for _, name := range []string{"*", "?", "[", "\\", "\x1b[2J", "$(id)", "-rf", "\xff\xfe", "..."} {
			add(name)
			defer remove(name)
		}
		for i := range n {
			add(fmt.Sprintf("d%d", i))
			if i%2 == 0 {
				remove(fmt.Sprintf("d%d", i))
			}
		}
		for i := range n {
			if i%2 == 1 {
				remove(fmt.Sprintf("d%d", i))
			}
		}
		for i := range n {
			add(fmt.Sprintf("e%d", i))
		}
		h.counted(t, eth0.B)
		for i := range n {
			remove(fmt.Sprintf("e%d", i))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	h.counted(t, eth0.B)
	h.devices(t, "a", "eth0")
	z := h.plug(t, "z0")
	h.devices(t, "a", "eth0", "z0")
	h.counted(t, z.B)
	if pins, err := filepath.Glob(filepath.Join(h.cfg.XDP.PinDir, "link-*")); err != nil || len(pins) != 2 {
		t.Errorf("%d links are pinned, %v, want 2", len(pins), err)
	}
	if c, err := h.e.Conditions(t.Context()); err != nil || slices.ContainsFunc(c, func(c dataplane.Condition) bool { return c.Severity == dataplane.High }) {
		t.Errorf("conditions %v, %v", c, err)
	}
	if n := h.discontinuities(); n != 0 {
		t.Errorf("%d discontinuities, want 0", n)
	}
}

// Attaching to many interfaces asks the kernel about all held hooks a few times, not once for each interface: on a host with
// hundreds of veths the start would take seconds.
func TestManyInterfacesAtOnceListTheHooksAFewTimes(t *testing.T) {
	const n = 24
	h := newHost(t, nil, dataplane.Interface{Name: "eth0"}, dataplane.Interface{Name: "last*", Optional: true})
	list := slices.Clone(h.cfg.Interfaces[1:])
	for i := range n {
		list = append(list, dataplane.Interface{Name: h.plug(t, fmt.Sprintf("eth%d", i)).A.Name})
	}
	h.run(t)
	h.plug(t, "last0")
	h.devices(t, "a", "eth0", "last0") // the watcher has handled all events before this one
	x := h.e.backends[0].(*xdp.Backend)
	was := x.Inspect().Refreshes
	if err := x.SetInterfaces(list); err != nil {
		t.Fatal(err)
	}
	if held, now := len(x.Inspect().Rules.Attachments()), x.Inspect().Refreshes; held != n+1 || now-was > n/2 {
		t.Errorf("%d hooks are held, and were listed %d times; want %d, at most %d", held, now-was, n+1, n/2)
	}
}
