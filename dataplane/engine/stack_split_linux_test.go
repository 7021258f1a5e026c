package engine

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/oracle"
	"github.com/flowtally/flowtally/internal/oracle/gen"
)

// TestSplitSetsCountEachPacketOnce draws overlapping sets of flows, lets the engine split
// them between the software NIC and XDP, sends frames that hit and nearly hit them, and
// compares every counter with the flows that the linear matcher names.
func TestSplitSetsCountEachPacketOnce(t *testing.T) {
	sets := 15
	switch {
	case os.Getenv("FLOWTALLY_STRESS") != "":
		sets = 250
	case testing.Short():
		sets = 8
	}
	for _, c := range []struct {
		name    string
		without []string
	}{{"devx", nil}, {"verbs", []string{"devx"}}} {
		t.Run(c.name, func(t *testing.T) {
			b := newSoftBench(t)
			b.Config.Mirror.Counters = 1024 // the places of one set cool down while others follow
			b.Env.Without = c.without
			b.run(t)
			rng := rand.New(rand.NewPCG(seed.Uint64(t), 1))
			var split int
			var sum setStats
			for range sets {
				s := b.trySet(t, rng)
				sum.rdma += s.rdma
				sum.xdp += s.xdp
				sum.hits += s.hits
				sum.unseen += s.unseen
				if s.rdma > 0 && s.xdp > 0 {
					split++
				}
			}
			t.Logf("%d sets, %d of them split; %d flows on rdma, %d on xdp; %d packets hit, and %d more with a tag that is cut would have",
				sets, split, sum.rdma, sum.xdp, sum.hits, sum.unseen)
			if split*10 < sets || sum.hits < 50*sets {
				t.Error("the test looks at little")
			}
		})
	}
}

// setStats is of one set: the flows on each backend and the packets that they have to count.
type setStats struct{ rdma, xdp, hits, unseen int }

// trySet counts one set.
func (b *softBench) trySet(t *testing.T, rng *rand.Rand) (s setStats) {
	t.Helper()
	flows := gen.Flows(rng, 4+rng.IntN(14))
	for i := range flows {
		flows[i].Action = flow.Count
	}
	// Half of them are such that hardware can count them.
	for i := range flows {
		if m := &flows[i].Match; rng.IntN(2) == 0 {
			m.VLAN = nil
			m.Choices = slices.DeleteFunc(m.Choices, func(c flow.Choice) bool { return c.Clause == "vlan" })
			if m.IPv4 != nil {
				m.IPv4.TTL, m.IPv4.Fragment = flow.Masked[uint8]{}, flow.FragmentAny
			}
			if m.IPv6 != nil {
				m.IPv6.HopLimit = flow.Masked[uint8]{}
			}
		}
	}
	placed, err := b.e.AddFlows(t.Context(), flows...)
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(flows))
	for i, p := range placed {
		names[i] = p.Flow.Name
		if p.Source.Backend == "rdma" {
			s.rdma++
		} else {
			s.xdp++
		}
	}
	matcher := oracle.New(flows)
	want := make([]backend.Pair, len(flows))
	sent := make(map[flow.Direction][][]byte)
	for _, d := range []flow.Direction{flow.Ingress, flow.Egress} {
		frames := make([][]byte, 0, 512) // as many as a sender's schedule holds at least: each is sent once
		for len(frames) < cap(frames) {
			f := gen.Packet(rng, flows)
			if len(frames) == 0 {
				f = tagThatIsCut
			}
			if cutMPLS(f) {
				continue // a NIC counts it as MPLS by its EtherType: docs/flows.md
			}
			frames = append(frames, f)
			i, ok := matcher.Match(oracle.Packet{Frame: f, Direction: d, Interface: b.Wire.Near.Name})
			switch {
			case !ok:
			case placed[i].Source.Backend == "rdma" && d == flow.Ingress && cutTag(f):
				s.unseen++
			default:
				want[i] = backend.Add(want[i], backend.Pair{Packets: 1, Bytes: uint64(len(f))})
				s.hits++
			}
		}
		b.pass(t, d, frames)
		sent[d] = frames
	}
	for i, p := range placed {
		if got := b.total(t, p.Flow.Name); got != want[i] {
			t.Errorf("%s (%s, priority %d, %s) by %s: counted %+v, want %+v", p.Flow.Name, p.Flow.Match, p.Flow.Priority, p.Flow.Direction, p.Source.String(), got, want[i])
		}
	}
	if t.Failed() {
		b.blame(t, matcher, placed, sent)
		for _, p := range placed {
			t.Logf("%s: priority %d %v %s: %s %v", p.Flow.Name, p.Flow.Priority, p.Flow.Direction, p.Flow.Match, p.Source.String(), p.Rejected)
		}
		t.FailNow()
	}
	if err := b.e.RemoveFlows(t.Context(), names...); err != nil {
		t.Fatal(err)
	}
	return s
}

// blame sends frames again, one by one, and shows the first that goes to other flows than
// the linear matcher names.
func (b *softBench) blame(t *testing.T, matcher *oracle.Matcher, placed []dataplane.Placement, sent map[flow.Direction][][]byte) {
	totals := func() []uint64 {
		out := make([]uint64, len(placed))
		for i, p := range placed {
			out[i] = b.total(t, p.Flow.Name).Packets
		}
		return out
	}
	was := totals()
	for d, frames := range sent {
		for _, f := range frames {
			want, ok := matcher.Match(oracle.Packet{Frame: f, Direction: d, Interface: b.Wire.Near.Name})
			b.pass(t, d, [][]byte{f})
			now := totals()
			for i, p := range placed {
				if n := now[i] - was[i]; (n == 1) != (ok && want == i) || n > 1 {
					t.Logf("%s counts %d of one %s frame %x", p.Flow.Name, n, d, f)
					return
				}
			}
			was = now
		}
	}
}

// tagThatIsCut is a frame that ends in its tag.
var tagThatIsCut = []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0x20}

// cutTag says whether the kernel drops a frame that comes in before packet sockets, and so the
// software NIC, look at it: it says that a tag is there and ends before the two bytes behind it
// (skb_vlan_untag). XDP sees it. A wire has no such frame: frames have 60 bytes at least.
func cutTag(f []byte) bool {
	typ := uint16(f[12])<<8 | uint16(f[13])
	return (typ == 0x8100 || typ == 0x88a8) && len(f) < 20
}

// cutMPLS reports whether a frame ends within its first MPLS label stack entry.
func cutMPLS(f []byte) bool {
	at := 12
	for at+6 <= len(f) && (f[at] == 0x81 && f[at+1] == 0 || f[at] == 0x88 && f[at+1] == 0xa8) {
		at += 4
	}
	return at+2 <= len(f) && f[at] == 0x88 && (f[at+1] == 0x47 || f[at+1] == 0x48) && len(f) < at+6
}

// pass sends each frame once, and waits until it has passed the programs and the software NIC.
func (b *softBench) pass(t *testing.T, d flow.Direction, frames [][]byte) {
	t.Helper()
	end := b.Wire.Far
	if d == flow.Egress {
		end = b.Wire.Near
	}
	snd, err := end.NewSender([]lab.Stream{{Name: "all", Frames: frames}}, lab.SenderOptions{Stack: d == flow.Egress})
	if err != nil {
		t.Fatal(err)
	}
	defer snd.Close()
	if err := snd.Run(t.Context(), uint64(len(frames))); err != nil {
		t.Fatal(err)
	}
	if err := snd.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Every packet to the port of VXLAN is VXLAN, in hardware and in XDP: the contents of its header make no
// difference between the two.
func TestVXLANIsKnownByItsPort(t *testing.T) {
	ip4 := frame.IPv4{Src: frame.Addr("192.0.2.1"), Dst: frame.Addr("192.0.2.2")}
	whole := frame.Build(frame.Eth{}, ip4, frame.UDP{Src: 7, Dst: 4789}, frame.VXLAN{VNI: 5}, frame.Eth{}, ip4, frame.TCP{Dst: 80})
	const vxlan = 14 + 20 + 8
	noFlag := slices.Clone(whole)
	noFlag[vxlan] &^= 0x08
	other := slices.Clone(whole)
	other[vxlan+6] = 6
	eachCounts(t, []share{
		{"ipv4 vxlan vni 5 inner ipv4 tcp dport 80", [][]byte{whole, noFlag}},
		{"ipv4 vxlan vni 5", [][]byte{whole[:vxlan+8]}},
		{"ipv4 vxlan", [][]byte{other, whole[:vxlan+7], whole[:vxlan], whole[:vxlan-4]}},
		{"ipv4 udp", [][]byte{whole[:vxlan-5]}},
	})
}

// A header is found as far into a frame as an MTU of 1500 lets it lie, behind tags too.
func TestHeadersAreFoundFarIntoAFrame(t *testing.T) {
	ip6 := frame.IPv6{Src: frame.Addr("2001:db8::1"), Dst: frame.Addr("2001:db8::2")}
	deep := func(length int, tags ...frame.Layer) []byte {
		stack := append([]frame.Layer{frame.Eth{}}, tags...)
		return frame.Build(append(stack, ip6, frame.Ext{Type: frame.Destination, Body: make([]byte, length-2)}, frame.UDP{Dst: 53})...)
	}
	eachCounts(t, []share{
		{"ipv6 udp dport 53", [][]byte{deep(8), deep(376), deep(1448), deep(1440, frame.VLAN{ID: 7, TPID: frame.TypeQinQ}, frame.VLAN{ID: 8})}},
		{"ipv6", [][]byte{deep(1448)[:14+40+1447]}},
	})
}

// An EtherType does not require the header that it names.
func TestAnEtherTypeAsksForNoHeader(t *testing.T) {
	whole := frame.Build(frame.Eth{}, frame.IPv6{Src: frame.Addr("2001:db8::1"), Dst: frame.Addr("2001:db8::2")}, frame.UDP{Dst: 53})
	eachCounts(t, []share{
		{"ipv6", [][]byte{whole}},
		{"eth type 0x86dd", [][]byte{whole[:14+39], whole[:14]}},
	})
}

// share is a match, and the frames that a flow counts by it behind the flows before it.
type share struct {
	match  string
	frames [][]byte
}

// eachCounts holds the software NIC with each of its steering APIs, and XDP, to the same counts.
func eachCounts(t *testing.T, shares []share) {
	for _, c := range []struct {
		name, backend string
		without       []string
	}{{"devx", "rdma", nil}, {"verbs", "rdma", []string{"devx", "dont_trap"}}, {"xdp", "xdp", nil}} {
		t.Run(c.name, func(t *testing.T) {
			b := newSoftBench(t)
			b.Env.Without = c.without
			b.Config.RDMA.Steal = true // flows that overlap go to verbs where the first match ends the search
			for i, s := range shares {
				b.Config.Flows = append(b.Config.Flows, flow.Flow{Name: strconv.Itoa(i), Match: match(t, s.match), Priority: uint16(i), Backend: flow.Backend(c.backend)})
			}
			b.run(t)
			for _, s := range shares {
				for _, f := range s.frames {
					b.pass(t, flow.Ingress, [][]byte{f})
				}
			}
			for i, s := range shares {
				var want backend.Pair
				for _, f := range s.frames {
					want = backend.Add(want, backend.Pair{Packets: 1, Bytes: uint64(len(f))})
				}
				if got := b.total(t, strconv.Itoa(i)); got != want {
					t.Errorf("%s: counted %+v, want %+v", s.match, got, want)
				}
			}
		})
	}
}
