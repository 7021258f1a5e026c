package xdp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/lab/times"
	"github.com/flowtally/flowtally/xdp/members"
)

// Programs do not load, so a set cannot grow. It keeps its elements, its programs and its pin, and grows later.
func TestSetThatCannotGrowStaysAsItIs(t *testing.T) {
	rng := seed.Rand(t)
	w := testWire(t)
	o := Options{MaxRules: 256, PinDir: pinDir(t)}
	dp := openTest(t, o)
	mustOpen(t, dp, SetSpec{Name: "ban", Elements: []netip.Prefix{bannedHost}})
	dropped, _ := banRules(t, dp, "ban", true)
	attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	good := dp.loader.spec
	bad := good.Copy()
	for _, p := range bad.Programs {
		p.Instructions = p.Instructions[1:]
	}
	check := func(elements int) {
		t.Helper()
		if got, err := dp.Members("ban"); err != nil || len(got) != elements {
			t.Errorf("%d elements, want %d: %v", len(got), elements, err)
		}
		before := readOne(t, dp, dropped).Packets
		var p *ebpf.Program
		for _, h := range dp.hooks {
			p = h.prog
		}
		runFrame(t, p, udp4(0x0a000001, 2, 3, 4, 64))
		if got := readOne(t, dp, dropped).Packets - before; got != 1 {
			t.Errorf("%d packets of an element were dropped, want 1", got)
		}
		if _, err := os.Stat(filepath.Join(o.PinDir, nextMembersPin)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the pin of a memory that is not in use: %v", err)
		}
		if lost, err := dp.Repin(); lost || err != nil {
			t.Errorf("pins were lost: %t, %v", lost, err)
		}
	}

	dp.loader.spec = bad
	many := randomHosts(rng, 2000)
	if _, err := dp.AddMembers("ban", many...); err == nil {
		t.Fatal("a set has grown without programs")
	}
	check(1)
	if err := dp.ReplaceMembers("ban", append(many, bannedHost)); err == nil {
		t.Fatal("a set has grown without programs")
	}
	check(1)
	if err := dp.OpenSets(SetSpec{Name: "other"}); err == nil {
		t.Fatal("a set has come without programs")
	}
	if n := len(dp.Sets()); n != 1 {
		t.Errorf("%d sets, want 1", n)
	}
	check(1)

	dp.loader.spec = good
	if n, err := dp.AddMembers("ban", many...); n != len(many) || err != nil {
		t.Fatal(n, err)
	}
	check(1 + len(many))
	if err := os.Remove(filepath.Join(o.PinDir, membersPin)); err != nil {
		t.Fatal(err)
	}
	if lost, err := dp.Repin(); !lost || err != nil {
		t.Errorf("a lost pin: %t, %v", lost, err)
	}
	check(1 + len(many))
}

// A call that finds no room waits for other changes until the set may grow. Meanwhile nobody may be told that its elements are there,
// since they go again if the set cannot grow.
func TestAFullSetHasNoNewElementUntilItHasGrown(t *testing.T) {
	dp := openTest(t, Options{MaxRules: 256})
	mustOpen(t, dp, SetSpec{Name: "ban", Elements: []netip.Prefix{bannedHost}})
	changes := func() uint64 {
		dp.sets.mu.Lock()
		defer dp.sets.mu.Unlock()
		return dp.sets.byName["ban"].changes
	}
	many := randomHosts(seed.Rand(t), 2000)
	before := changes()

	dp.changes.Lock()
	done := make(chan error, 1)
	go func() {
		_, err := dp.AddMembers("ban", many...)
		done <- err
	}()
	for changes() == before {
		time.Sleep(time.Millisecond)
	}
	if got, err := dp.Members("ban"); err != nil || len(got) != 1 {
		t.Errorf("%d elements before the set has grown, want 1: %v", len(got), err)
	}
	dp.changes.Unlock()

	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got, err := dp.Members("ban"); err != nil || len(got) != 1+len(many) {
		t.Errorf("%d elements, want %d: %v", len(got), 1+len(many), err)
	}
}

func TestElementsThatAFullSetHasAskForNoMoreRoom(t *testing.T) {
	dp := openTest(t, Options{MaxRules: 256})
	mustOpen(t, dp, SetSpec{Name: "ban"})
	many := randomHosts(seed.Rand(t), 3000)
	if _, err := dp.AddMembers("ban", many...); err != nil {
		t.Fatal(err)
	}
	room := func() int { return dp.Sets()[0].Room.IPv4 }

	before, n := room(), 0
	for room() == before { // each call brings all elements again
		n++
		if _, err := dp.AddMembers("ban", append(many, randomHosts(seed.Rand(t), n)...)...); err != nil {
			t.Fatal(err)
		}
		n *= 2
	}
	if got := room(); got > 2*before {
		t.Errorf("a set with room for %d elements has grown to room for %d, want twice at most", before, got)
	}
}

// A call that cannot wait for running programs does not say that the change applies to every packet.
func TestChangeOfASetWaitsForRunningPrograms(t *testing.T) {
	dp := openTest(t, Options{MaxRules: 256})
	mustOpen(t, dp, SetSpec{Name: "a", Elements: []netip.Prefix{bannedHost}, Room: members.Shape{IPv4: 100}})
	good := dp.grace
	bad, err := newGrace(nil)
	if err != nil {
		t.Fatal(err)
	}
	bad.close()
	dp.grace = bad
	defer func() { dp.grace = good }()

	narrow, wide := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.0/24")
	if _, err := dp.AddMembers("a", narrow); err == nil {
		t.Error("an element was added without a wait")
	}
	if _, err := dp.RemoveMembers("a", bannedHost); err == nil {
		t.Error("an element was removed without a wait")
	}
	if err := dp.ReplaceMembers("a", []netip.Prefix{wide}); err == nil {
		t.Error("a set was replaced without a wait")
	}
	if got, err := dp.Members("a"); err != nil || !slices.Contains(got, narrow) {
		t.Errorf("elements %v: one that overlaps a new one went without a wait: %v", got, err)
	}
}

// Elements come and go from many goroutines, while sets come, go and grow, rules change, and hooks are attached. Each change is there
// when its call returns, and an element that stays drops every packet. The last calls meet the end of the datapath.
func TestChangesOfManyCallersAreAllThere(t *testing.T) {
	rng := seed.Rand(t)
	w := testWire(t)
	dp := openTest(t, Options{MaxRules: 256})
	mustOpen(t, dp, SetSpec{Name: "ban", Elements: []netip.Prefix{bannedHost}})
	dropped, passed := banRules(t, dp, "ban", true)
	attach(t, dp, w.Near, AttachOptions{Mode: ModeTCX, Ingress: true})
	sent, stop := run(t, w.Far, 0x0a000001)
	awaitSent(t, sent, 100)

	const callers = 6
	rounds := times.Brief(12, 6)
	var wg sync.WaitGroup
	for caller := range callers {
		g := rand.New(rand.NewPCG(rng.Uint64(), uint64(caller)))
		wg.Go(func() {
			var mine []netip.Prefix
			for round := range rounds {
				for i := range 40 {
					mine = append(mine, netip.PrefixFrom(netip.AddrFrom4([4]byte{172, byte(caller), byte(round), byte(i)}), 32))
				}
				if n, err := dp.AddMembers("ban", mine[len(mine)-40:]...); n != 40 || err != nil {
					t.Errorf("adding: %d, %v", n, err)
				}
				g.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
				if n, err := dp.RemoveMembers("ban", mine[:10]...); n != 10 || err != nil {
					t.Errorf("removing: %d, %v", n, err)
				}
				mine = mine[10:]
				key := Key{}
				key.Out.Flags = FlagIPv4
				a := mine[0].Addr().As4()
				copy(key.Out.Addr[:], a[:])
				if err := dp.Ask(&key); err != nil || answersOf(&key.Out)&1 == 0 {
					t.Errorf("%v was added and is not found: %v", mine[0], err)
				}
			}
		})
	}
	wg.Go(func() {
		for round := range rounds {
			name := fmt.Sprint("set-", round)
			if err := dp.OpenSets(SetSpec{Name: name, Elements: []netip.Prefix{bannedHost}}); err != nil {
				t.Error(err)
				return
			}
			m, err := dp.Membership(name, Field{Destination: true})
			if err != nil {
				t.Error(err)
				return
			}
			r := Rule{Counter: passed, Priority: 9}
			m.Condition(&r, true)
			if err := errors.Join(dp.Add(r), dp.Remove(r), dp.CloseSets(name)); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	want := stop()
	if d, p := readOne(t, dp, dropped).Packets, readOne(t, dp, passed).Packets; d != want || p != 0 {
		t.Errorf("%d packets dropped and %d passed of %d sent", d, p, want)
	}
	if got, err := dp.Members("ban"); err != nil || len(got) != 1+callers*rounds*30 {
		t.Errorf("%d elements, want %d: %v", len(got), 1+callers*rounds*30, err)
	}

	for range callers {
		wg.Go(func() {
			for {
				if _, err := dp.AddMembers("ban", bannedHost); err != nil {
					if !errors.Is(err, ErrClosed) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	if err := dp.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

// FLOWTALLY_MEMBERS=1e6 prints the figures of docs/classifier.md.
func TestElementsOfAGreatSetTakeFewBytes(t *testing.T) {
	rng := seed.Rand(t)
	n := times.Of(t, "FLOWTALLY_MEMBERS", 200_000, 200_000)
	dp := openTest(t, Options{MaxRules: 256})
	single := mustCounter(t, dp, "single")
	flow := exact4(0x0a000001, 2, 3, 4, single)
	mustAdd(t, dp, flow)
	one := program(t, dp, HookIngress, 0)
	if err := dp.Remove(flow); err != nil {
		t.Fatal(err)
	}

	seen := map[netip.Prefix]bool{bannedHost: true}
	elements := []netip.Prefix{bannedHost}
	for len(elements) < n {
		if p := randomHosts(rng, 1)[0]; !seen[p] {
			seen[p] = true
			elements = append(elements, p)
		}
	}
	start := time.Now()
	mustOpen(t, dp, SetSpec{Name: "ban", Room: members.Shape{IPv4: n}, Elements: elements})
	took := time.Since(start)
	bytes := float64(len(dp.sets.memory.words)*8) / float64(n)
	dropped, _ := banRules(t, dp, "ban", true)
	asks := program(t, dp, HookIngress, 0)
	t.Logf("%d elements in %v, %.1f bytes each", n, took, bytes)
	if bytes > 64 {
		t.Errorf("%.1f bytes an element, want at most 64", bytes)
	}

	ns := func(p *ebpf.Program, frame []byte) float64 {
		t.Helper()
		best := time.Duration(1 << 62)
		for range 5 {
			_, took, err := p.Benchmark(frame, 200_000, nil)
			if err != nil {
				t.Fatal(err)
			}
			best = min(best, took)
		}
		return float64(best.Nanoseconds())
	}
	hit, miss := udp4(0x0a000001, 2, 3, 4, 64), udp4(0x0a000101, 2, 3, 4, 64)
	t.Logf("one flow %.0f ns; an element %.0f ns, none %.0f ns: one frame again and again", ns(one, hit), ns(asks, hit), ns(asks, miss))

	for _, p := range []string{"10.9.9.9/32", "10.9.0.0/16", "10.0.0.0/8", "0.0.0.0/0"} {
		e := netip.MustParsePrefix(p)
		s := dp.sets.byName["ban"]
		start := time.Now()
		if _, err := s.filled.Add(e); err != nil {
			t.Fatal(err)
		}
		stores := time.Since(start)
		s.filled.Reclaim()
		start = time.Now()
		if n, err := dp.RemoveMembers("ban", e); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		t.Logf("%v: added by stores of %v, removed by a call of %v", e, stores, time.Since(start))
	}
	if readOne(t, dp, dropped).Packets == 0 {
		t.Error("no packet of an element was dropped")
	}
}
