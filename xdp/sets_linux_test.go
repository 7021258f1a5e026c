package xdp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/lab/times"
	"github.com/flowtally/flowtally/xdp/members"
)

// prefixSet is what a set must be.
type prefixSet map[netip.Prefix]bool

// has reports whether some element covers an address.
func (p prefixSet) has(a netip.Addr) bool {
	for length := range a.BitLen() + 1 {
		if q, _ := a.Prefix(length); p[q] {
			return true
		}
	}
	return false
}

// near returns a prefix of an address of the world, or of one beside it.
func (w world) near() netip.Prefix {
	_, k := w.packet()
	f := Field{IPv6: k.Out.Flags&FlagIPv6 != 0, Destination: w.rng.IntN(2) == 0}
	a, _ := f.address(&k)
	length := w.rng.IntN(a.BitLen() + 1)
	if w.rng.IntN(2) == 0 {
		length = a.BitLen() - w.rng.IntN(8)
	}
	p, _ := a.Prefix(length)
	return p
}

func (w world) prefixes(n int) (list []netip.Prefix) {
	for range n {
		list = append(list, w.near())
	}
	return list
}

// question is a question with what its set must be.
type question struct {
	Membership
	set string
}

// fillIn puts the answers into the key of a packet.
func fillIn(k *Key, questions []question, live map[string]prefixSet) {
	for _, q := range questions {
		if a, ok := q.field.address(k); ok {
			r := Rule{Key: *k}
			q.Condition(&r, live[q.set].has(a))
			*k = r.Key
		}
	}
}

func mustOpen(t testing.TB, dp *Datapath, specs ...SetSpec) {
	t.Helper()
	if err := dp.OpenSets(specs...); err != nil {
		t.Fatal(err)
	}
}

func mustAsk(t testing.TB, dp *Datapath, set string, f Field) Membership {
	t.Helper()
	m, err := dp.Membership(set, f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Random rules that ask random sets, and sets that change, under random packets on both hooks. A scan over the rules and over the
// prefixes is the specification.
func TestProgramsAskSetsLikeAScan(t *testing.T) {
	rng := seed.Rand(t)
	dp := openTest(t, Options{MaxRules: 1024})
	w := world{rng}
	wire := testWire(t)
	attach(t, dp, wire.Near, AttachOptions{Mode: ModeNative, Ingress: true, Egress: true})
	port, err := dp.Port(wire.Near.Name)
	if err != nil {
		t.Fatal(err)
	}
	id := mustCounter(t, dp, "all")
	live := map[string]prefixSet{}
	open := func() {
		name := fmt.Sprint("set-", rng.IntN(1000))
		if live[name] != nil {
			return
		}
		elements := w.prefixes(rng.IntN(10))
		mustOpen(t, dp, SetSpec{Name: name, Elements: elements})
		live[name] = prefixSet{}
		for _, p := range elements {
			live[name][p] = true
		}
	}
	names := func() (list []string) {
		for name := range live {
			list = append(list, name)
		}
		slices.Sort(list)
		return list
	}

	var rules []Rule
	var questions []question
	order := uint32(0)
	runs, hits := 0, 0
	for round := range times.Of(t, "FLOWTALLY_SET_ROUNDS", 80, 40) {
		if len(live) < 3 {
			open()
		}
		if rng.IntN(8) == 0 && len(live) > 0 { // a set goes with its rules
			name := names()[rng.IntN(len(live))]
			if len(rules) > 0 {
				if err := dp.CloseSets(name); err != nil && !errors.Is(err, ErrInvalid) {
					t.Fatalf("round %d: closing a set that rules may ask for: %v", round, err)
				} else if err == nil {
					delete(live, name)
				}
			}
			if err := dp.Remove(rules...); err != nil {
				t.Fatal(err)
			}
			rules = nil
			if live[name] != nil {
				if err := dp.CloseSets(name); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				delete(live, name)
			}
			questions = slices.DeleteFunc(questions, func(q question) bool { return q.set == name })
			open()
		}

		for range rng.IntN(6) { // sets change
			if len(live) == 0 {
				break
			}
			name := names()[rng.IntN(len(live))]
			set := live[name]
			switch rng.IntN(4) {
			case 0:
				elements := w.prefixes(rng.IntN(8))
				if err := dp.ReplaceMembers(name, elements); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				clear(set)
				for _, p := range elements {
					set[p] = true
				}
			case 1:
				var gone []netip.Prefix
				for p := range set {
					if rng.IntN(2) == 0 {
						gone = append(gone, p)
					}
				}
				n, err := dp.RemoveMembers(name, append(gone, w.near())...)
				if err != nil || n < len(gone) {
					t.Fatalf("round %d: %d of %d elements removed: %v", round, n, len(gone), err)
				}
				got, err := dp.Members(name)
				if err != nil {
					t.Fatal(err)
				}
				clear(set)
				for _, p := range got {
					set[p] = true
				}
			default:
				elements := w.prefixes(rng.IntN(5))
				if _, err := dp.AddMembers(name, elements...); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				for _, p := range elements {
					set[p] = true
				}
			}
			if got, err := dp.Members(name); err != nil || len(got) != len(set) {
				t.Fatalf("round %d: set %s has %d elements, and should have %d: %v", round, name, len(got), len(set), err)
			}
		}

		var add []Rule
		for range 1 + rng.IntN(8) {
			order++
			r := w.rule(w.mask(rng.IntN(3)), order, id)
			r.Mask.Out.Flags &^= FlagIPv4 | FlagIPv6
			r.Key = r.Key.Under(r.Mask)
			v6 := rng.IntN(2) == 0
			for range 1 + rng.IntN(2) {
				if len(live) == 0 {
					break
				}
				name := names()[rng.IntN(len(live))]
				m, err := dp.Membership(name, Field{IPv6: v6, Destination: rng.IntN(2) == 0})
				if errors.Is(err, ErrFull) && strings.Contains(err.Error(), name) {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				m.Condition(&r, rng.IntN(2) == 0)
				if q := (question{m, name}); !slices.Contains(questions, q) {
					questions = append(questions, q)
				}
			}
			add = append(add, r)
		}
		mustAdd(t, dp, add...)
		rules = append(rules, add...)
		if err := dp.verify(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}

		progs := map[Hook]*ebpf.Program{}
		for k, h := range dp.hooks {
			progs[k.hook] = h.prog
		}
		for range 400 {
			frame, k := w.packet()
			h := []Hook{HookIngress, HookEgress}[rng.IntN(2)]
			k.Out.Port = port
			want := []uint32{xdpPass, xdpDrop}
			if h == HookEgress {
				k.Out.Flags |= FlagEgress
				want = []uint32{tcxNext, tcxShot}
			}
			asks := k
			fillIn(&k, questions, live)
			if err := dp.Ask(&asks); err != nil || asks != k {
				t.Fatalf("round %d: the answers in Go: %+v, want %+v: %v", round, asks.Out, k.Out, err)
			}
			best := scan(rules, k)
			before := readOne(t, dp, id)
			verdict := runFrame(t, progs[h], frame)
			after := readOne(t, dp, id)
			n, drop := uint64(0), 0
			if best != nil {
				n = 1
				hits++
				if best.Drop {
					drop = 1
				}
			}
			runs++
			if after.Packets-before.Packets != n || verdict != want[drop] {
				t.Fatalf("round %d, %s, %d rules, %d questions: key %+v: counted %d packets, verdict %d; want %d, drop %d, rule %+v",
					round, h, len(rules), len(questions), k.Out, after.Packets-before.Packets, verdict, n, drop, best)
			}
		}
	}
	t.Logf("%d packets, %d hits, %d loads of programs, last one %d instructions verified", runs, hits, dp.Stats().Programs, dp.Stats().Insns)
	if hits < runs/10 || hits > runs*9/10 {
		t.Errorf("%d of %d packets hit a rule: the test shows little", hits, runs)
	}
}

// Each field, in frames of each form, is found in a set and outside of it. A packet without the field matches neither way.
func TestEachFieldIsLookedUpInASet(t *testing.T) {
	in4, out4 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.1")
	in6, out6 := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db9::1")
	dp := openTest(t, Options{MaxRules: 256})
	mustOpen(t, dp,
		SetSpec{Name: "other", Elements: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db9::/32")}},
		SetSpec{Name: "set", Elements: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}})
	mustAsk(t, dp, "other", Field{})

	addresses := func(f Field, in bool) (src, dst netip.Addr) {
		yes, no := in4, out4
		if f.IPv6 {
			yes, no = in6, out6
		}
		if f.Destination == in {
			return no, yes
		}
		return yes, no
	}
	ip := func(f Field, in bool) frame.Layer {
		src, dst := addresses(f, in)
		if f.IPv6 {
			return frame.IPv6{Src: src, Dst: dst}
		}
		return frame.IPv4{Src: src, Dst: dst}
	}
	outer4 := frame.IPv4{Src: out4, Dst: out4}
	outer6 := frame.IPv6{Src: out6, Dst: out6}
	udp := frame.UDP{Src: 1, Dst: 2}
	for _, field := range []Field{
		{}, {Destination: true}, {IPv6: true}, {IPv6: true, Destination: true},
		{Inner: true}, {Inner: true, Destination: true}, {Inner: true, IPv6: true}, {Inner: true, IPv6: true, Destination: true},
	} {
		for _, in := range []bool{true, false} {
			id := mustCounter(t, dp, fmt.Sprint(field, in))
			r := Rule{Counter: id}
			mustAsk(t, dp, "set", field).Condition(&r, in)
			mustAdd(t, dp, r)
			for _, hook := range []Hook{HookIngress, HookEgress} {
				p := program(t, dp, hook, 1)
				other := field
				other.IPv6 = !field.IPv6
				forms := map[string][]frame.Layer{
					"plain":    {frame.Eth{}, ip(field, in), udp, frame.Payload(20)},
					"tagged":   {frame.Eth{}, frame.VLAN{ID: 5}, ip(field, in), udp, frame.Payload(20)},
					"ICMP":     {frame.Eth{}, ip(field, in), frame.ICMP{Type: 8}, frame.Payload(20)},
					"not so":   {frame.Eth{}, ip(field, !in), udp, frame.Payload(20)},
					"other IP": {frame.Eth{}, ip(other, in), udp, frame.Payload(20)},
				}
				if field.Inner {
					vxlan := []frame.Layer{frame.UDP{Src: 9, Dst: 4789}, frame.VXLAN{VNI: 5}, frame.Eth{}}
					forms = map[string][]frame.Layer{
						"VXLAN":        append(append([]frame.Layer{frame.Eth{}, outer4}, vxlan...), ip(field, in), udp, frame.Payload(20)),
						"VXLAN over 6": append(append([]frame.Layer{frame.Eth{}, outer6}, vxlan...), ip(field, in), udp, frame.Payload(20)),
						"IP in IP":     {frame.Eth{}, outer4, ip(field, in), udp, frame.Payload(20)},
						"not so":       {frame.Eth{}, outer4, ip(field, !in), udp, frame.Payload(20)},
						"other IP":     {frame.Eth{}, outer4, ip(other, in), udp, frame.Payload(20)},
						"no tunnel":    {frame.Eth{}, ip(Field{IPv6: field.IPv6, Destination: field.Destination}, in), udp, frame.Payload(20)},
					}
				}
				for name, layers := range forms {
					before := readOne(t, dp, id).Packets
					runFrame(t, p, frame.Build(layers...))
					want := uint64(1)
					if name == "not so" || name == "other IP" || name == "no tunnel" {
						want = 0
					}
					if got := readOne(t, dp, id).Packets - before; got != want {
						t.Errorf("%s, in the set: %t, %s, %s: counted %d packets, want %d", field, in, hook, name, got, want)
					}
				}
			}
			if err := dp.Remove(r); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// banRules are a rule that drops UDP from the addresses of a set, and one that counts the other packets.
func banRules(t testing.TB, dp *Datapath, set string, in bool) (dropped, passed uint32) {
	t.Helper()
	dropped, passed = mustCounter(t, dp, "dropped"), mustCounter(t, dp, "passed")
	udp := Rule{Counter: passed, Priority: 1}
	udp.Key.Out.Flags, udp.Mask.Out.Flags = FlagIPv4, FlagIPv4
	udp.Key.Out.Proto, udp.Mask.Out.Proto = 17, 0xff
	ban := udp
	ban.Counter, ban.Priority, ban.Drop = dropped, 0, true
	mustAsk(t, dp, set, Field{}).Condition(&ban, in)
	mustAdd(t, dp, ban, udp)
	return dropped, passed
}

// run sends from one address until stop is called, which returns the number of packets.
func run(t *testing.T, e *lab.End, src uint32) (sent func() uint64, stop func() uint64) {
	t.Helper()
	s, err := e.NewSender([]lab.Stream{{Name: "a", Frames: [][]byte{udp4(src, 0x0a000002, 1000, 53, 100)}}}, lab.SenderOptions{Rate: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	ctx, enough := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, 1<<40) }()
	sent = func() uint64 { return s.Sent()[0].Packets }
	return sent, func() uint64 {
		t.Helper()
		enough()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		settle, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Settle(settle); err != nil {
			t.Fatal(err)
		}
		return sent()
	}
}

// awaitSent waits until so many packets more were sent.
func awaitSent(t *testing.T, sent func() uint64, more uint64) {
	t.Helper()
	from := sent()
	for start := time.Now(); sent() < from+more; time.Sleep(time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatalf("%d of %d packets were sent in a minute", sent()-from, more)
		}
	}
}

// A set drops, or all but the set is dropped. Nothing passes from the return of the call that bans on, and nothing is dropped from the
// return of the call that ends the ban on. Every packet counts.
func TestBannedAddressSendsNothingFromTheReturnOfTheCallOn(t *testing.T) {
	for _, mode := range []Mode{ModeNative, ModeGeneric, ModeTCX} {
		for _, in := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v, in the set: %t", mode, in), func(t *testing.T) {
				w := testWire(t)
				dp := openTest(t, Options{MaxRules: 256})
				mustOpen(t, dp, SetSpec{Name: "ban"})
				dropped, passed := banRules(t, dp, "ban", in)
				attach(t, dp, w.Near, AttachOptions{Mode: mode, Ingress: true})
				sent, stop := run(t, w.Far, 0x0a000001)

				element := netip.MustParsePrefix("10.0.0.1/32")
				for round := range 15 {
					if round%3 == 1 {
						element = netip.MustParsePrefix("10.0.0.0/24")
					}
					awaitSent(t, sent, 100)
					if n, err := dp.AddMembers("ban", element); n != 1 || err != nil {
						t.Fatal(n, err)
					}
					idle, busy := passed, dropped
					if !in {
						idle, busy = dropped, passed
					}
					before := readOne(t, dp, idle)
					awaitSent(t, sent, 500)
					if after := readOne(t, dp, idle); after != before {
						t.Errorf("round %d: %d packets took the other way after the element was added", round, after.Packets-before.Packets)
					}

					if n, err := dp.RemoveMembers("ban", element); n != 1 || err != nil {
						t.Fatal(n, err)
					}
					before = readOne(t, dp, busy)
					awaitSent(t, sent, 500)
					if after := readOne(t, dp, busy); after != before {
						t.Errorf("round %d: %d packets took the way of the element after it was removed", round, after.Packets-before.Packets)
					}
				}
				want := stop()
				d, p := readOne(t, dp, dropped).Packets, readOne(t, dp, passed).Packets
				if d+p != want || d == 0 || p == 0 {
					t.Errorf("%d packets dropped and %d passed of %d sent", d, p, want)
				}
				t.Logf("%d packets, %d dropped", want, d)
			})
		}
	}
}

// randomHosts draws addresses that the senders of the tests do not have.
func randomHosts(g *rand.Rand, n int) (list []netip.Prefix) {
	for range n {
		v := g.Uint32() | 1<<31
		list = append(list, netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}), 32))
	}
	return list
}

// One element or another covers the sender at any instant, while the set grows from memory to memory, and other sets come and go.
func TestNoPacketPassesWhileASetGrowsAroundItsElement(t *testing.T) {
	rng := seed.Rand(t)
	w := testWire(t)
	dp := openTest(t, Options{MaxRules: 256})
	wide, narrow := netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("10.0.0.1/32")
	mustOpen(t, dp, SetSpec{Name: "ban", Elements: []netip.Prefix{narrow}})
	dropped, passed := banRules(t, dp, "ban", true)
	attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	sent, stop := run(t, w.Far, 0x0a000001)
	awaitSent(t, sent, 100)

	loads, total := dp.Stats().Programs, 1
	for round := range times.Brief(30, 12) {
		in, out := wide, narrow
		if round%2 == 1 {
			in, out = narrow, wide
		}
		if _, err := dp.AddMembers("ban", in); err != nil {
			t.Fatal(err)
		}
		if n, err := dp.RemoveMembers("ban", out); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		n, err := dp.AddMembers("ban", randomHosts(rng, 1000)...)
		if err != nil {
			t.Fatal(err)
		}
		total += n
		switch round % 6 {
		case 2:
			mustOpen(t, dp, SetSpec{Name: "other", Elements: randomHosts(rng, 10)})
			mustAsk(t, dp, "other", Field{Destination: true})
		case 4:
			if err := dp.CloseSets("other"); err != nil {
				t.Fatal(err)
			}
		case 5:
			elements := append(randomHosts(rng, 3000), in)
			if err := dp.ReplaceMembers("ban", elements); err != nil {
				t.Fatal(err)
			}
			total = len(elements)
		}
	}
	want := stop()
	if d, p := readOne(t, dp, dropped).Packets, readOne(t, dp, passed).Packets; d != want || p != 0 {
		t.Errorf("%d packets dropped and %d passed of %d sent", d, p, want)
	}
	loads = dp.Stats().Programs - loads
	got, err := dp.Members("ban")
	if err != nil || len(got) != total {
		t.Errorf("%d elements, want %d: %v", len(got), total, err)
	}
	t.Logf("%d packets, %d elements, %d loads of programs", want, len(got), loads)
	if loads < 4 {
		t.Errorf("the set moved %d times: the test shows little", loads)
	}
}

// A process ends, and the next one adopts its pins. An element that the set has before and after is never missed, also while nobody has
// said yet what the elements are.
func TestSetOverARestartMissesNoElement(t *testing.T) {
	rng := seed.Rand(t)
	w := testWire(t)
	o := Options{MaxRules: 256, PinDir: pinDir(t)}
	dp, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dp, SetSpec{Name: "ban", Elements: append(randomHosts(rng, 100), bannedHost)}, SetSpec{Name: "more", Elements: []netip.Prefix{bannedHost}})
	dropped, passed := banRules(t, dp, "ban", true)
	attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	sent, stop := run(t, w.Far, 0x0a000001)
	awaitSent(t, sent, 1000)
	for round := range 4 {
		loads := uint64(0)
		if round == 2 { // the next process is of another build: it loads its own programs for these sets
			dp.mu.Lock()
			dp.meta.clearLoaded()
			dp.mu.Unlock()
			loads = 1
		}
		if err := dp.Close(); err != nil {
			t.Fatal(err)
		}
		awaitSent(t, sent, 500)
		if dp, err = Open(o); err != nil {
			t.Fatal(err)
		}
		if got := dp.Stats().Programs; got != loads {
			t.Errorf("round %d: %d programs were loaded, want %d", round, got, loads)
		}
		if list := dp.Sets(); len(list) != 2 || list[0].Name != "ban" || !list[0].Adopted || list[1].Name != "more" || !list[1].Adopted {
			t.Fatalf("round %d: adopted %+v", round, list)
		}
		if _, err := dp.AddMembers("ban", bannedHost); !errors.Is(err, ErrInvalid) {
			t.Errorf("round %d: changing an adopted set: %v", round, err)
		}
		awaitSent(t, sent, 500)
		switch round {
		case 0: // programs are loaded before anybody has said what the elements are
			r := exact4(1, 2, 3, 4, passed)
			r.Key.Out.TTL, r.Mask.Out.TTL = 1, 0xff
			r.Key.Out.EthDst, r.Mask.Out.EthDst = [6]byte{1}, [6]byte{255}
			mustAdd(t, dp, r)
		case 1: // another set comes first
			mustOpen(t, dp, SetSpec{Name: "more"})
		}
		awaitSent(t, sent, 500)
		mustOpen(t, dp, SetSpec{Name: "ban", Elements: append(randomHosts(rng, 1000), bannedHost)})
		if round != 1 {
			mustOpen(t, dp, SetSpec{Name: "more"})
		}
		if m := mustAsk(t, dp, "ban", Field{}); m != (Membership{}) {
			t.Errorf("round %d: the question has another bit: %+v", round, m)
		}
		if _, err := dp.AddMembers("ban", randomHosts(rng, 2000)...); err != nil {
			t.Fatal(err)
		}
		awaitSent(t, sent, 500)
	}
	if got := dp.meta.header[1]; got != layoutWithSets {
		t.Errorf("the header has layout %d, want %d: a version without sets would adopt the pins", got, layoutWithSets)
	}
	want := stop()
	if d, p := readOne(t, dp, dropped).Packets, readOne(t, dp, passed).Packets; d != want || p != 0 {
		t.Errorf("%d packets dropped and %d passed of %d sent", d, p, want)
	}

	// Without their sets, the rules mean something else.
	if err := dp.Close(); err != nil {
		t.Fatal(err)
	}
	lock, err := lockDir(o.PinDir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unpin(lock, membersPin), lock.Close()); err != nil {
		t.Fatal(err)
	}
	if dp, err = Open(o); !errors.Is(err, ErrIncompatible) {
		t.Errorf("rules without the pin of their sets: %v", err)
	}
	if err == nil {
		dp.Destroy()
	}
}

// bannedHost sends in the tests with traffic.
var bannedHost = netip.MustParsePrefix("10.0.0.1/32")

// churnSets is the process that TestProcessKilledWhileSetsMoveLeavesThemFilled kills: its sets come, grow, shrink and go without end.
func churnSets(dir string) error {
	dp, err := Open(Options{PinDir: dir, MaxRules: 256})
	if err != nil {
		return err
	}
	g := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	if err := dp.OpenSets(SetSpec{Name: "ban", Elements: append(randomHosts(g, 100), bannedHost)}); err != nil {
		return err
	}
	for i := 0; ; i++ {
		if _, err := dp.AddMembers("ban", randomHosts(g, 700)...); err != nil {
			return err
		}
		other := fmt.Sprint("other-", i)
		if err := dp.OpenSets(SetSpec{Name: other, Elements: randomHosts(g, 10)}); err != nil {
			return err
		}
		if _, err := dp.Membership(other, Field{Destination: true}); err != nil {
			return err
		}
		if err := dp.ReplaceMembers("ban", append(randomHosts(g, 100), bannedHost)); err != nil {
			return err
		}
		if err := dp.CloseSets(other); err != nil {
			return err
		}
	}
}

// A process is killed at any instant of a change of sets, again and again, and the next one adopts its pins. The element that the set
// has all the time is never missed.
func TestProcessKilledWhileSetsMoveLeavesThemFilled(t *testing.T) {
	rng := seed.Rand(t)
	w := testWire(t)
	o := Options{MaxRules: 256, PinDir: pinDir(t)}
	dp, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dp, SetSpec{Name: "ban", Elements: []netip.Prefix{bannedHost}})
	dropped, passed := banRules(t, dp, "ban", true)
	attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	sent, stop := run(t, w.Far, 0x0a000001)
	awaitSent(t, sent, 100)
	for kill := range times.Brief(12, 4) {
		if err := dp.Close(); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), setsEnv+"="+o.PinDir)
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(200+rng.IntN(600)) * time.Millisecond)
		cmd.Process.Kill()
		if err := cmd.Wait(); err == nil || strings.Contains(out.String(), "FAIL") {
			t.Fatalf("kill %d: the child ended by itself: %v\n%s", kill, err, out.String())
		}
		if dp, err = Open(o); err != nil {
			t.Fatalf("kill %d: %v", kill, err)
		}
		awaitSent(t, sent, 500)
		if names, err := PinsIn(o.PinDir); err != nil || slices.Contains(names, nextMembersPin) || !slices.Contains(names, membersPin) {
			t.Errorf("kill %d: pins %v, %v", kill, names, err)
		}
		t.Logf("kill %d: adopted %+v", kill, dp.Sets())
	}
	want := stop()
	if d, p := readOne(t, dp, dropped).Packets, readOne(t, dp, passed).Packets; d != want || p != 0 {
		t.Errorf("%d packets dropped and %d passed of %d sent", d, p, want)
	}
	if err := dp.Destroy(); err != nil {
		t.Error(err)
	}
}

// The most pairs load on both hooks, and each set has its own answer. One more is refused by the name of its set.
func TestTheMostSetsOfAPacketLoadAndOneMoreIsRefused(t *testing.T) {
	dp := openTest(t, Options{MaxRules: 256})
	var specs []SetSpec
	for i := range outerPairs + 1 {
		specs = append(specs, SetSpec{Name: fmt.Sprint("set-", i), Elements: []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 0}), 24),
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, byte(i)}), 48),
		}})
	}
	mustOpen(t, dp, specs...)
	ids := map[question]uint32{}
	for level, most := range mostPairs {
		var add []Rule
		for i := range most + 1 {
			f := Field{Inner: level == 1, IPv6: i%2 == 1, Destination: i%3 == 0}
			m, err := dp.Membership(specs[i].Name, f)
			if i == most {
				if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), specs[i].Name) {
					t.Errorf("asking set %d of %s: %v", i, f, err)
				}
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			r := Rule{Counter: mustCounter(t, dp, fmt.Sprint(level, i)), Order: uint32(100*level + i)}
			m.Condition(&r, true)
			add = append(add, r)
			ids[question{m, specs[i].Name}] = r.Counter
		}
		mustAdd(t, dp, add...)
		for _, h := range []Hook{HookIngress, HookEgress} {
			start := time.Now()
			p := program(t, dp, h, 1)
			t.Logf("%d rules, %s: %d instructions verified, loaded in %v", dp.Stats().Rules, h, dp.Stats().Insns, time.Since(start))
			if dp.Stats().Insns > 500_000 {
				t.Errorf("%d instructions, of 1,000,000 that the kernel allows", dp.Stats().Insns)
			}
			for q, id := range ids {
				var n int
				fmt.Sscanf(q.set, "set-%d", &n)
				before := readOne(t, dp, id).Packets
				runFrame(t, p, memberFrame(q.field, n))
				if got := readOne(t, dp, id).Packets - before; got != 1 {
					t.Errorf("%s in %s: counted %d packets", q.field, q.set, got)
				}
			}
		}
	}

	if err := dp.CloseSets(specs[0].Name); !errors.Is(err, ErrInvalid) {
		t.Errorf("closing a set that a rule asks for: %v", err)
	}
	if err := dp.OpenSets(specs[0]); !errors.Is(err, ErrExists) {
		t.Errorf("opening a set twice: %v", err)
	}
	if _, err := dp.AddMembers("absent", specs[0].Elements...); !errors.Is(err, ErrNotFound) {
		t.Errorf("adding to no set: %v", err)
	}
	if _, err := dp.AddMembers(specs[0].Name, netip.Prefix{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("adding no prefix: %v", err)
	}
	if err := dp.OpenSets(SetSpec{Name: "huge", Room: members.Shape{IPv4: members.MostElements + 1}}); !errors.Is(err, ErrFull) {
		t.Errorf("a set without bounds: %v", err)
	}
	if err := dp.OpenSets(SetSpec{Name: "less than empty", Room: members.Shape{IPv6: -1}}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a set of less than no room: %v", err)
	}
	r := Rule{Counter: 0}
	r.Key.Out.Flags, r.Mask.Out.Flags = FlagIPv4, FlagIPv4
	r.Mask.In.Label[0] = 0x80
	if err := dp.Add(r); !errors.Is(err, ErrInvalid) {
		t.Errorf("a rule of a bit that is no membership: %v", err)
	}
}

// memberFrame is a frame of which one field alone is in set n.
func memberFrame(f Field, n int) []byte {
	src, dst := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	member := netip.AddrFrom4([4]byte{10, 0, byte(n), 1})
	if f.IPv6 {
		src, dst = netip.MustParseAddr("2001:db9::1"), netip.MustParseAddr("2001:db9::2")
		member = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, byte(n), 15: 1})
	}
	if f.Destination {
		dst = member
	} else {
		src = member
	}
	layers := []frame.Layer{frame.Eth{}}
	if f.Inner {
		layers = append(layers, frame.IPv4{Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("192.0.2.2")})
	}
	if f.IPv6 {
		layers = append(layers, frame.IPv6{Src: src, Dst: dst})
	} else {
		layers = append(layers, frame.IPv4{Src: src, Dst: dst})
	}
	return frame.Build(append(layers, frame.UDP{Src: 1, Dst: 2}, frame.Payload(30))...)
}

// Programs ask for a pair until the next load. A set that takes the bit of a closed one must not get the answers of that set.
func TestBitOfAClosedSetHasTheAnswersOfTheNext(t *testing.T) {
	dp := openTest(t, Options{MaxRules: 256})
	w := testWire(t)
	attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	elements := []netip.Prefix{bannedHost}
	mustOpen(t, dp, SetSpec{Name: "filler-0"}, SetSpec{Name: "filler-1"}, SetSpec{Name: "filler-2"})
	for i := range outerPairs - 1 { // one bit is left
		mustAsk(t, dp, fmt.Sprint("filler-", i/4), Field{Destination: i&1 != 0, IPv6: i&2 != 0})
	}
	for i := range 6 { // before the first rule, because a set that comes takes other programs
		mustOpen(t, dp, SetSpec{Name: fmt.Sprint(i), Elements: elements[:1-i%2]})
	}
	for i := range 6 {
		name := fmt.Sprint(i)
		var r Rule
		r.Counter = mustCounter(t, dp, name)
		mustAsk(t, dp, name, Field{}).Condition(&r, true)
		mustAdd(t, dp, r)
		var p *ebpf.Program
		for _, h := range dp.hooks {
			p = h.prog
		}
		runFrame(t, p, udp4(0x0a000001, 2, 3, 4, 64))
		if got, want := readOne(t, dp, r.Counter).Packets, uint64(1-i%2); got != want {
			t.Errorf("set %d: counted %d packets, want %d", i, got, want)
		}
		if err := dp.Remove(r); err != nil {
			t.Fatal(err)
		}
		if err := dp.CloseSets(name); err != nil {
			t.Fatal(err)
		}
	}
}
