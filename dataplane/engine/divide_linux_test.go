package engine

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
)

// twoNICs is a softBench with a second wire, whose near end is the netdev of a second device.
type twoNICs struct {
	*softBench
	second string // device
	other  *lab.Pair
}

func newTwoNICs(t *testing.T) *twoNICs {
	t.Helper()
	b := &twoNICs{softBench: newSoftBench(t), second: lab.Unique("mlx5_")}
	var err error
	b.other, err = lab.NewPair(b.Wire.Near.NS, b.Wire.Far.NS, lab.Unique("near"), lab.Unique("far"), lab.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b.Config.Interfaces = append(b.Config.Interfaces, dataplane.Interface{Name: b.other.A.Name, Mode: dataplane.ModeNative})
	b.Env.Devices = append(b.Env.Devices, ibvtest.Device{Name: b.second, Netdev: b.other.A.Name})
	first, second := b.Wire.Near.Name, b.other.A.Name
	b.Config.Flows = []flow.Flow{
		{Name: "above", Match: match(t, "ipv4 udp dport 1001 sport 7"), Priority: 1, Interface: first},
		{Name: "both", Match: match(t, "ipv4 udp dport 1001"), Priority: 5},
		{Name: "hot", Match: match(t, "ipv4 udp dport 1002"), Priority: 5, Latency: true},
		{Name: "drop", Match: match(t, "ipv4 udp dport 1004"), Priority: 6, Action: flow.Drop},
		{Name: "low-first", Match: match(t, "ipv4 udp"), Priority: 9, Interface: first},
		{Name: "low-second", Match: match(t, "ipv4 udp"), Priority: 9, Interface: second},
	}
	return b
}

// sender sends packets that match "both", "hot", nothing but the low flow, and "drop", in this order.
func (b *twoNICs) sender(t *testing.T, end *lab.End) *lab.Sender {
	t.Helper()
	snd, err := end.NewSender([]lab.Stream{
		{Name: "both", Frames: [][]byte{udpTo(1001, 60), udpTo(1001, 1514)}},
		{Name: "hot", Frames: [][]byte{udpTo(1002, 77)}},
		{Name: "low", Frames: [][]byte{udpTo(1003, 99)}},
		{Name: "drop", Frames: [][]byte{udpTo(1004, 66)}},
	}, lab.SenderOptions{Rate: 20_000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { snd.Close() })
	return snd
}

func sendTo(t *testing.T, snd *lab.Sender, ctx context.Context, n uint64) {
	if err := snd.Run(ctx, n); err != nil {
		t.Error(err)
	}
	if err := snd.Settle(t.Context()); err != nil {
		t.Error(err)
	}
}

// placed waits until the sources of the flows of both interfaces and of the first one are so.
func (b *twoNICs) placed(t *testing.T, both, first string) {
	t.Helper()
	var last []dataplane.Placement
	want := map[string]string{
		"both": both, "hot": both, "above": first, "low-first": first,
		"low-second": "rdma:" + b.second + "/devx",
	}
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		var err error
		if last, err = b.e.Placements(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(last, func(p dataplane.Placement) bool {
			return p.Flow.Name != "drop" && p.Source.String() != want[p.Flow.Name]
		}) {
			return
		}
	}
	t.Fatalf("the flows are counted so: %+v", last)
}

// sampled waits until every device was sampled after the call. Packets that a device counts after its last
// sample are lost when the device is removed.
func (b *twoNICs) sampled(t *testing.T) {
	t.Helper()
	for _, name := range []string{"both", "hot", "drop", "low-first", "low-second"} {
		b.total(t, name)
	}
}

func (b *twoNICs) discontinuities(name string) uint64 {
	b.e.ctl.Lock()
	defer b.e.ctl.Unlock()
	return uint64(b.e.flows[name].past.Discontinuities)
}

// One of two devices is lost while packets pass on both interfaces. The other device goes on counting, also for
// flows of both interfaces. Only packets of the lost device's interface may be missing.
func TestTheLossOfOneOfTwoDevicesLeavesTheOther(t *testing.T) {
	for _, c := range []struct {
		name       string
		busy       bool // packets pass on the interface of the device while it is lost and returns
		lose, back func(*ibvtest.Control, string) error
	}{
		{"removed", false, (*ibvtest.Control).Remove, (*ibvtest.Control).Return},
		{"removed in traffic", true, (*ibvtest.Control).Remove, (*ibvtest.Control).Return},
		{"port", false, (*ibvtest.Control).PortDown, (*ibvtest.Control).PortUp},
	} {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() && c.name == "removed" {
				t.Skip("removed in traffic is the same with packets")
			}
			b := newTwoNICs(t)
			b.run(t)
			first, second := b.Wire.Near.Name, b.other.A.Name
			inBoth := "rdma:" + b.Device + "," + b.second + "/devx,devx"
			inFirst := "rdma:" + b.Device + "/devx"
			b.placed(t, inBoth, inFirst)

			one, two := b.sender(t, b.Wire.Far), b.sender(t, b.other.B)
			ctx, enough := context.WithCancel(t.Context())
			defer enough()
			var sending sync.WaitGroup
			sending.Go(func() { sendTo(t, two, ctx, 0) }) // all the time
			start := func() (stop func()) {
				if !c.busy {
					return func() {}
				}
				ctx, enough := context.WithCancel(t.Context())
				var sending sync.WaitGroup
				sending.Go(func() { sendTo(t, one, ctx, 0) })
				return func() { enough(); sending.Wait() }
			}
			hooks := func(want ...string) {
				t.Helper()
				var held []string
				for _, a := range b.e.mover.stack.software.(*xdp.Backend).Inspect().Rules.Attachments() {
					held = append(held, a.Interface)
				}
				if !slices.Equal(held, want) {
					t.Errorf("XDP holds hooks of %v, want %v (of %s and %s)", held, want, first, second)
				}
			}
			for round := range 3 {
				sendTo(t, one, t.Context(), 3000)
				b.sampled(t)
				stop := start()
				if err := c.lose(b.control, b.Device); err != nil {
					t.Fatal(err)
				}
				mode := "native"
				b.placed(t, "rdma,xdp:"+b.second+","+first+"/devx,"+mode,
					"xdp:"+first+"/"+mode)
				stop()
				hooks(first)
				sendTo(t, one, t.Context(), 3000)
				stop = start()
				if err := c.back(b.control, b.Device); err != nil {
					t.Fatal(err)
				}
				b.placed(t, inBoth, inFirst)
				stop()
				hooks()
				if n, want := b.discontinuities("both"), uint64(round+1); n < want || !c.busy && n != want {
					t.Errorf("round %d: %d discontinuities, want one for each loss", round, n)
				}
			}
			sendTo(t, one, t.Context(), 3000)
			enough()
			sending.Wait()
			for i, name := range []string{"both", "hot", "", "drop"} {
				if name == "" {
					continue
				}
				got := b.total(t, name)
				most, least := backend.Add(backend.Pair(one.Sent()[i]), backend.Pair(two.Sent()[i])), backend.Pair(two.Sent()[i])
				t.Logf("%s: sent %d on the first interface and %d on the other, counted %d", name, one.Sent()[i].Packets, least.Packets, got.Packets)
				if !c.busy && got != most || got.Packets > most.Packets || got.Packets < least.Packets {
					t.Errorf("%s: counted %+v, sent %+v", name, got, most)
				}
			}
			if got := b.total(t, "low-first"); !c.busy && got != backend.Pair(one.Sent()[2]) || got.Packets > one.Sent()[2].Packets {
				t.Errorf("low-first: counted %+v, sent %+v", got, one.Sent()[2])
			}
			if got := b.total(t, "low-second"); got != backend.Pair(two.Sent()[2]) || b.discontinuities("low-second") != 0 {
				t.Errorf("low-second: counted %+v with %d discontinuities, sent %+v", got, b.discontinuities("low-second"), two.Sent()[2])
			}
			if got := b.total(t, "above"); got != (backend.Pair{}) {
				t.Errorf("above: counted %+v of no packet", got)
			}
		})
	}
}

// A flow that has lost one of its two devices moves to XDP on both interfaces when the other device is lost too,
// and when XDP counts a flow that wins over it. Packets that are sent while no source changes are counted once.
func TestAFlowOfOneOfTwoDevicesMovesWithEachPacketCountedOnce(t *testing.T) {
	b := newTwoNICs(t)
	b.run(t)
	first, second := b.Wire.Near.Name, b.other.A.Name
	one, two := b.sender(t, b.Wire.Far), b.sender(t, b.other.B)
	send := func() {
		t.Helper()
		sendTo(t, one, t.Context(), 1000)
		sendTo(t, two, t.Context(), 2000)
		b.sampled(t)
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	source := func(name, want string) {
		t.Helper()
		var last string
		for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			placed, err := b.e.Placements(t.Context(), name)
			do(err)
			if last = placed[0].Source.String(); last == want {
				return
			}
		}
		t.Fatalf("%s is counted by %s, want %s", name, last, want)
	}
	check := func(names ...string) {
		t.Helper()
		send()
		for i, name := range []string{"both", "hot"} {
			if got, want := b.total(t, name), backend.Add(backend.Pair(one.Sent()[i]), backend.Pair(two.Sent()[i])); slices.Contains(names, name) && got != want {
				t.Errorf("%s: counted %+v, sent %+v", name, got, want)
			}
		}
		for name, snd := range map[string]*lab.Sender{"low-first": one, "low-second": two} {
			if got, want := b.total(t, name), backend.Pair(snd.Sent()[2]); got != want {
				t.Errorf("%s: counted %+v, sent %+v", name, got, want)
			}
		}
	}
	inBoth := "rdma:" + b.Device + "," + b.second + "/devx,devx"
	divided := "rdma,xdp:" + b.second + "," + first + "/devx,native"
	inXDP := "xdp:" + first + "," + second + "/native,native"

	source("both", inBoth)
	check("both", "hot")
	do(b.control.Remove(b.Device))
	source("both", divided)
	source("hot", divided)
	check("both", "hot")
	do(b.control.Remove(b.second)) // now both are gone
	source("both", inXDP)
	source("low-second", "xdp:"+second+"/native")
	check("both", "hot")
	do(b.control.Return(b.second)) // a flow of both waits for the other device
	do(b.control.Return(b.Device))
	source("both", inBoth)
	source("hot", inBoth)
	source("low-first", "rdma:"+b.Device+"/devx")
	source("low-second", "rdma:"+b.second+"/devx")
	check("both", "hot")

	do(b.control.Remove(b.Device))
	source("both", divided)
	source("hot", divided)
	check("both", "hot")
	// It matches nothing that is sent, is counted by XDP, as one of its devices is not there, and wins over "both".
	_, err := b.e.AddFlows(t.Context(), flow.Flow{Name: "new", Match: match(t, "ipv4 udp dport 1001 sport 8"), Priority: 2})
	do(err)
	source("both", inXDP)
	source("hot", divided)
	check("both", "hot")
	do(b.e.RemoveFlows(t.Context(), "new", "hot"))
	do(b.control.Return(b.Device))
	source("both", inBoth)
	source("low-first", "rdma:"+b.Device+"/devx")
	do(b.e.RemoveFlows(t.Context(), "both", "drop", "above", "low-first", "low-second"))
	x := b.e.mover.stack.software.(*xdp.Backend).Inspect()
	if n := len(x.Rules.Counters()); n != 0 {
		t.Errorf("XDP keeps %d counters of no flow", n)
	}
	if n := len(x.Rules.Rules()); n != 0 {
		t.Errorf("XDP keeps %d rules of no flow", n)
	}
	if x.Demand != 0 {
		t.Errorf("hooks are needed for no flow: %d needs", x.Demand)
	}
}

// A flow of two interfaces was divided, and is changed to a flow of the interface on which XDP counted it apart. It counts
// other packets than before: its total begins at 0.
func TestADividedFlowChangedToOneInterfaceBeginsAtZero(t *testing.T) {
	b := newTwoNICs(t)
	b.run(t)
	first := b.Wire.Near.Name
	inBoth, inFirst := "rdma:"+b.Device+","+b.second+"/devx,devx", "rdma:"+b.Device+"/devx"
	b.placed(t, inBoth, inFirst)
	one := b.sender(t, b.Wire.Far)
	if err := b.control.Remove(b.Device); err != nil {
		t.Fatal(err)
	}
	b.placed(t, "rdma,xdp:"+b.second+","+first+"/devx,native", "xdp:"+first+"/native")
	sendTo(t, one, t.Context(), 3000)
	b.sampled(t)
	if err := b.control.Return(b.Device); err != nil {
		t.Fatal(err)
	}
	b.placed(t, inBoth, inFirst)
	flows := slices.Clone(b.Config.Flows)
	flows[slices.IndexFunc(flows, func(f flow.Flow) bool { return f.Name == "both" })].Interface = first
	if _, err := b.e.SetFlows(t.Context(), flows, dataplane.SetOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := b.total(t, "both"); got != (backend.Pair{}) {
		t.Errorf("the changed flow begins at %+v", got)
	}
}

// A process that ends while a flow is divided leaves pins of it: the next one goes on with the totals, and
// removes the rules and the counters that it has no use for.
func TestADividedFlowGoesOnOverARestart(t *testing.T) {
	b := newTwoNICs(t)
	b.Config.XDP.KeepPins = true
	one, two := b.sender(t, b.Wire.Far), b.sender(t, b.other.B)
	for round := range 2 {
		b.run(t)
		sendTo(t, one, t.Context(), 1000)
		sendTo(t, two, t.Context(), 1000)
		b.sampled(t)
		if round == 0 {
			if err := b.control.Remove(b.Device); err != nil {
				t.Fatal(err)
			}
			b.placed(t, "rdma,xdp:"+b.second+","+b.Wire.Near.Name+"/devx,native",
				"xdp:"+b.Wire.Near.Name+"/native")
			sendTo(t, one, t.Context(), 1000)
			b.sampled(t)
		}
		for i, name := range []string{"both", "hot"} {
			if got, want := b.total(t, name), backend.Add(backend.Pair(one.Sent()[i]), backend.Pair(two.Sent()[i])); got != want {
				t.Errorf("run %d: %s: counted %+v, sent %+v", round, name, got, want)
			}
		}
		if round == 0 {
			if err := b.e.Close(); err != nil {
				t.Fatal(err)
			}
			b.Config.XDP.KeepPins = false
			continue
		}
		if n := len(b.e.mover.stack.software.(*xdp.Backend).Inspect().Rules.Counters()); n != len(b.e.flows) {
			t.Errorf("XDP has %d counters for %d flows", n, len(b.e.flows))
		}
	}
}
