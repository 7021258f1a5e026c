package xdp

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/oracle"
	"github.com/flowtally/flowtally/xdp"
)

// The test changes flows of 4,096 masks and port ranges under traffic: a few at a time; half of them at once, so that the trees
// are built anew; and so that one mask moves from the hash table to the trees and back. No packet may be lost or count twice
// meanwhile, and each must count for the flow that the oracle names before or after the change. Between the changes each counter
// must agree with the oracle, to the packet.
func TestManyMasksChangeUnderTrafficWithoutALostPacket(t *testing.T) {
	need.BPF(t)
	need.Netns(t)
	m := newManyMasks(t)
	exact := m.exact(300, behindMasked)
	m.step("the exact flows are hashed", func() { m.exchange(nil, exact) })
	m.hashes(1)
	masked := []*maskedFlow{{match: flow.Match{IPv4: &flow.IPv4{}}, priority: 60_000}} // of every frame
	for mask := range manyMasks {
		masked = append(masked, m.masked(mask, uint16(firstMasked+mask)))
	}
	m.step("4,096 masks come", func() { m.exchange(nil, masked) })
	m.open(masked[1:], exact)
	few := func() {
		for range 6 {
			m.replace(masked[1:], 8)
		}
	}
	m.step("few flows change", few)
	m.step("the exact flows go from the hash table to the trees", func() {
		m.exchange(exact, nil)
		// A match of another layer makes us load other programs, and the load forgets which mask was hashed.
		m.exchange(nil, []*maskedFlow{{match: flow.Match{VLAN: []flow.VLAN{{ID: flow.Masked[uint16]{Value: 5, Mask: 0xfff}}}}, priority: 50_000}})
		exact = m.exact(300, behindMasked)
		m.exchange(nil, exact)
	})
	m.hashes(0)
	built := m.rules.Stats().Built
	m.step("half of the flows change", func() { m.replace(masked[1:], manyMasks/2) })
	if now := m.rules.Stats().Built; now == built {
		t.Error("the trees were not built anew")
	}
	m.step("the exact flows go from the trees to the hash table", func() {
		m.exchange(exact, nil)
		m.exchange(nil, []*maskedFlow{{match: flow.Match{IPv6: &flow.IPv6{}}, priority: 50_001}}) // loads the programs again
		// In front: otherwise each hit would walk the trees, and the mask would not be hashed.
		exact = m.exact(firstMasked, 0)
		m.exchange(nil, exact)
	})
	m.hashes(1)
	m.step("few flows change again", few)
	if got := m.rules.Stats(); got.Tuples < manyMasks {
		t.Errorf("%d masks", got.Tuples)
	}
	t.Logf("%d masks, trees built %d times, %d packets", m.rules.Stats().Tuples, m.rules.Stats().Built, m.packets)
}

const manyMasks = 4096

// Priorities: the masked flows begin at firstMasked. Exact flows are in front of them, or begin at behindMasked.
const (
	firstMasked  = 2000
	behindMasked = 10_000
)

// maskedFlow is a flow that is or was installed.
type maskedFlow struct {
	match    flow.Match
	priority uint16
	mask     int
	rules    []xdp.Rule
	counter  uint32
	before   xdp.Pair
}

type manyMasksTest struct {
	*testing.T
	rng     *rand.Rand
	wire    *lab.Wire
	rules   *xdp.Datapath
	order   uint32
	frames  [][]byte
	matched []map[*maskedFlow]bool // by frame: the live flows that match it
	winners []map[*maskedFlow]bool // by frame: the flows that have won on it since the step began
	live    map[*maskedFlow]bool
	all     []*maskedFlow
	sender  *lab.Sender
	sent    []lab.Tally
	packets uint64
}

func newManyMasks(t *testing.T) *manyMasksTest {
	m := &manyMasksTest{T: t, live: map[*maskedFlow]bool{}}
	// Draw the same flows in each run, unless the seed is set.
	if os.Getenv(seed.Env) == "" {
		t.Setenv(seed.Env, strconv.Itoa(manyMasks))
	}
	m.rng = seed.Rand(t)
	var err error
	if m.wire, err = lab.NewWire(lab.WireOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.wire.Close() })
	if m.rules, err = xdp.Open(xdp.Options{MaxRules: 1 << 15}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.rules.Destroy() })
	return m
}

// open attaches to the wire and prepares to send frames of some flows.
func (m *manyMasksTest) open(of ...[]*maskedFlow) {
	near := m.wire.Near
	err := near.NS.Do(func() error {
		_, err := m.rules.Attach(near.Name, xdp.AttachOptions{Mode: xdp.ModeNative, Ingress: true})
		return err
	})
	if err != nil {
		m.Fatal(err)
	}
	var streams []lab.Stream
	for _, flows := range of {
		for range 200 {
			frame := m.frame(flows[m.rng.IntN(len(flows))])
			m.frames = append(m.frames, frame)
			streams = append(streams, lab.Stream{Name: fmt.Sprint(len(streams)), Frames: [][]byte{frame}})
			matched := map[*maskedFlow]bool{}
			for f := range m.live {
				if oracle.Matches(f.match, oracle.Packet{Frame: frame, Interface: near.Name}) {
					matched[f] = true
				}
			}
			m.matched, m.winners = append(m.matched, matched), append(m.winners, map[*maskedFlow]bool{})
		}
	}
	if m.sender, err = m.wire.Far.NewSender(streams, lab.SenderOptions{Rate: 10_000}); err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { m.sender.Close() })
	m.sent = m.sender.Sent()
}

// step makes changes under traffic, and compares the counters with the oracle: for packets during the changes, then for packets
// after them.
func (m *manyMasksTest) step(name string, change func()) {
	m.Helper()
	if m.sender == nil {
		change()
		return
	}
	m.note(true)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.sender.Run(ctx, 0) }()
	m.flowing()
	change()
	m.flowing()
	stop()
	if err := <-done; err != nil {
		m.Fatalf("%s: %v", name, err)
	}
	m.compare(name + ", during the changes")
	m.note(true)
	if err := m.sender.Run(context.Background(), uint64(3*len(m.frames))); err != nil {
		m.Fatalf("%s: %v", name, err)
	}
	m.compare(name)
}

// flowing waits for the next 1,000 packets.
func (m *manyMasksTest) flowing() {
	total := func() (n uint64) {
		for _, s := range m.sender.Sent() {
			n += s.Packets
		}
		return n
	}
	for first, end := total(), time.Now().Add(time.Minute); total() < first+1000; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			m.Fatal("the sender stands still")
		}
	}
}

// note adds to the winners of each frame the flow that wins now. With first it forgets the earlier winners.
func (m *manyMasksTest) note(first bool) {
	for i, matched := range m.matched {
		var winner *maskedFlow
		for f := range matched {
			if winner == nil || f.priority < winner.priority {
				winner = f
			}
		}
		if first {
			clear(m.winners[i])
		}
		m.winners[i][winner] = true
	}
}

// compare compares the counters with the frames sent since the last call. If several flows have won on a frame, it compares the
// sum of their counters.
func (m *manyMasksTest) compare(name string) {
	m.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := m.sender.Settle(ctx); err != nil {
		m.Fatal(err)
	}
	parent := map[*maskedFlow]*maskedFlow{}
	var root func(f *maskedFlow) *maskedFlow
	root = func(f *maskedFlow) *maskedFlow {
		if p := parent[f]; p != nil {
			return root(p)
		}
		return f
	}
	for _, winners := range m.winners {
		var one *maskedFlow
		for f := range winners {
			if one == nil {
				one = root(f)
			} else if r := root(f); r != one {
				parent[r] = one
			}
		}
	}
	want, got := map[*maskedFlow]xdp.Pair{}, map[*maskedFlow]xdp.Pair{}
	sent := m.sender.Sent()
	for i, winners := range m.winners {
		for f := range winners {
			sum := want[root(f)]
			sum.Packets += sent[i].Packets - m.sent[i].Packets
			sum.Bytes += sent[i].Bytes - m.sent[i].Bytes
			m.packets += sent[i].Packets - m.sent[i].Packets
			want[root(f)] = sum
			break
		}
	}
	m.sent = sent
	ids := make([]uint32, len(m.all))
	for i, f := range m.all {
		ids[i] = f.counter
	}
	now := make([]xdp.Pair, len(ids))
	if err := m.rules.Read(ids, now); err != nil {
		m.Fatal(err)
	}
	for i, f := range m.all {
		sum := got[root(f)]
		sum.Packets += now[i].Packets - f.before.Packets
		sum.Bytes += now[i].Bytes - f.before.Bytes
		f.before = now[i]
		got[root(f)] = sum
	}
	alone := 0
	for f, n := range got {
		if n != want[f] {
			m.Errorf("%s: flow %s of priority %d, and flows that win on its packets, counted %+v of %+v", name, f.match, f.priority, n, want[f])
		}
		if n.Packets > 0 && parent[f] == nil {
			alone++
		}
	}
	if m.Failed() {
		m.FailNow()
	}
	m.Logf("%s: %d sums of counters are those of the linear matcher", name, alone)
}

// hashes checks how many masks are hashed.
func (m *manyMasksTest) hashes(n int) {
	m.Helper()
	if got := m.rules.Stats().Hashed; got != n {
		m.Errorf("%d masks are hashed, want %d", got, n)
	}
}

// exchange removes flows and adds others in one call.
func (m *manyMasksTest) exchange(old, fresh []*maskedFlow) {
	m.Helper()
	var remove, add []xdp.Rule
	for _, f := range old {
		remove = append(remove, f.rules...)
	}
	for _, f := range fresh {
		m.order++
		c, err := m.rules.AllocCounter(fmt.Sprint("flow-", m.order))
		if err != nil {
			m.Fatal(err)
		}
		f.counter = c.ID
		placed := flow.Flow{Name: "a", Match: f.match, Priority: f.priority}
		if f.rules, err = compile(backend.Placed{Flow: placed, Order: m.order}, f.counter, m.rules.Port); err != nil {
			m.Fatal(err)
		}
		add = append(add, f.rules...)
		m.all = append(m.all, f)
	}
	var err error
	switch {
	case len(old) == 0:
		err = m.rules.Add(add...)
	case len(fresh) == 0:
		err = m.rules.Remove(remove...)
	default:
		err = m.rules.Exchange(remove, add)
	}
	if err != nil {
		m.Fatal(err)
	}
	for _, f := range old {
		delete(m.live, f)
		for i := range m.matched {
			delete(m.matched[i], f)
		}
	}
	for _, f := range fresh {
		m.live[f] = true
		for i, frame := range m.frames {
			if oracle.Matches(f.match, oracle.Packet{Frame: frame, Interface: m.wire.Near.Name}) {
				m.matched[i][f] = true
			}
		}
	}
	m.note(false)
}

// replace exchanges n of the flows for others of the same masks. Every third keeps its match and only gets another counter.
func (m *manyMasksTest) replace(flows []*maskedFlow, n int) {
	var old, fresh []*maskedFlow
	for i, at := range m.rng.Perm(len(flows))[:n] {
		f := flows[at]
		next := m.masked(f.mask, f.priority)
		if i%3 == 0 {
			next.match = f.match
		}
		old, fresh, flows[at] = append(old, f), append(fresh, next), next
	}
	m.exchange(old, fresh)
}

// address returns one of 64 addresses of a network, so that frames and flows often meet.
func (m *manyMasksTest) address(net byte) [4]byte {
	v := uint16(m.rng.IntN(64)) * 40503
	return [4]byte{10, net, byte(v >> 8), byte(v)}
}

// masked draws a flow of a mask. The bits of mask are the lengths of two prefixes, and whether the flow asks for TOS, for TTL and
// for each of the ports. Otherwise the port is in a range.
func (m *manyMasksTest) masked(mask int, priority uint16) *maskedFlow {
	prefix := func(net byte, length int) (a flow.Addr4) {
		a.Addr = m.address(net)
		binary.BigEndian.PutUint32(a.Mask[:], ^uint32(0)<<(32-length))
		for i := range a.Addr {
			a.Addr[i] &= a.Mask[i]
		}
		return a
	}
	ip := &flow.IPv4{Src: prefix(0, 17+mask&15), Dst: prefix(1, 17+mask>>4&15)}
	if mask>>8&1 != 0 {
		ip.TOS = flow.Masked[uint8]{Value: 4 * uint8(m.rng.IntN(2)), Mask: 0xff}
	}
	if mask>>9&1 != 0 {
		ip.TTL = flow.Masked[uint8]{Value: 63 + uint8(m.rng.IntN(2)), Mask: 0xff}
	}
	port := func(exact bool) flow.Port {
		if first := uint16(1000 + m.rng.IntN(4)); exact {
			return flow.Port{Value: first, Mask: 0xffff}
		}
		first := uint16(m.rng.IntN(1003))
		return flow.Port{Value: first, Last: first + 1 + uint16(m.rng.IntN(2000))}
	}
	ports := flow.Ports{Src: port(mask>>10&1 != 0), Dst: port(mask>>11&1 != 0)}
	f := &maskedFlow{mask: mask, priority: priority, match: flow.Match{IPv4: ip}}
	if m.rng.IntN(2) == 0 {
		f.match.UDP = &ports
	} else {
		f.match.TCP = &flow.TCP{Ports: ports}
	}
	return f
}

// exact draws flows of one mask. Their priorities begin at priority.
func (m *manyMasksTest) exact(n, priority int) (flows []*maskedFlow) {
	for i := range n {
		net := flow.Addr4{Addr: [4]byte{10}, Mask: [4]byte{255, 255}} // no flow of masked has a source so short
		ip := &flow.IPv4{Src: net, Dst: flow.Addr4{Addr: m.address(1), Mask: [4]byte{255, 255, 255, 255}}}
		ports := &flow.Ports{Src: flow.Port{Value: uint16(1000 + i), Mask: 0xffff}, Dst: flow.Port{Value: 1001, Mask: 0xffff}}
		flows = append(flows, &maskedFlow{match: flow.Match{IPv4: ip, UDP: ports}, priority: uint16(priority + i)})
	}
	return flows
}

// frame returns a frame that a flow matches.
func (m *manyMasksTest) frame(f *maskedFlow) []byte {
	b := make([]byte, 64+m.rng.IntN(64))
	b[12], b[14], b[23] = 8, 0x45, 17
	ip := f.match.IPv4
	binary.BigEndian.PutUint16(b[16:], uint16(len(b)-14))
	b[15], b[22] = ip.TOS.Value, ip.TTL.Value|64&^ip.TTL.Mask
	for i, a := range []flow.Addr4{ip.Src, ip.Dst} {
		host := m.address(byte(i))
		for j := range host {
			b[26+4*i+j] = a.Addr[j] | host[j]&^a.Mask[j]
		}
	}
	ports := f.match.UDP
	if ports == nil {
		ports, b[23] = &f.match.TCP.Ports, 6
		b[46] = 0x50
	}
	for i, p := range []flow.Port{ports.Src, ports.Dst} {
		v := p.Value
		if p.Last != 0 {
			v = min(max(v, uint16(1000+m.rng.IntN(4))), p.Last)
		}
		binary.BigEndian.PutUint16(b[34+2*i:], v)
	}
	return b
}
