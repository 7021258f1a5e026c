package xdp

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/lab/times"
	"github.com/flowtally/flowtally/xdp/tree"
)

// Rules with many masks and ranges are added, exchanged and removed under traffic.
func TestRulesThatStayMissNoPacketWhileTreesChange(t *testing.T) {
	const flows, batch = 4, 20
	changes := times.Brief(3_000, 1_000)
	w := testWire(t)
	dp := openTest(t, Options{MaxRules: 4096})
	ids := floodRules(t, dp, flows)
	attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	other := mustCounter(t, dp, "other")
	s := flood(t, w.Far, flows, 100, lab.SenderOptions{})
	done, stop := make(chan error, 1), make(chan struct{})
	go func() {
		for {
			if err := s.Run(context.Background(), 50_000); err != nil {
				done <- err
				return
			}
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
		}
	}()
	rng := seed.Rand(t)
	world := world{rng}
	order := uint32(1000)
	draw := func() (rules []Rule) {
		for range batch {
			order++
			r := exact4(rng.Uint32(), rng.Uint32(), uint16(rng.Uint32()), uint16(rng.Uint32()), other)
			if rng.IntN(10) == 0 {
				r = world.rule(world.mask(3), order, other) // overlaps many
			}
			for at := range 8 {
				r.Mask.Out.Addr[at] &= 0xff << rng.IntN(9)
				r.Key.Out.Addr[at] &= r.Mask.Out.Addr[at]
			}
			r.Priority, r.Order, r.Drop = 9, order, false // above the rules that stay
			rules = append(rules, r)
		}
		return rules
	}
	var live [][]Rule
	masks := 0
	for n := 0; n < changes; n += batch {
		switch fresh := draw(); {
		case len(live) > 40:
			if err := dp.Remove(live[0]...); err != nil {
				t.Fatal(err)
			}
			live = live[1:]
		case len(live) > 0 && rng.IntN(3) == 0:
			at := rng.IntN(len(live))
			if err := dp.Exchange(live[at], fresh); err != nil {
				t.Fatal(err)
			}
			live[at] = fresh
		default:
			mustAdd(t, dp, fresh...)
			live = append(live, fresh)
		}
		masks = max(masks, dp.Stats().Tuples)
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := dp.verify(); err != nil {
		t.Fatal(err)
	}
	compareCounts(t, dp, ids, s)
	t.Logf("%d changes of rules, %d masks at most", changes, masks)
}

// The trees find other rules than the linear matcher. A bug would do that.
func TestWrongTreesAreNotAttached(t *testing.T) {
	dp := openTest(t, Options{MaxRules: 256})
	id := mustCounter(t, dp, "a")
	for i := range 4 {
		r := exact4(1, 2, 3, 4, id)
		r.Mask.Out.Addr[i], r.Key.Out.Addr[i], r.Order = 0, 0, uint32(i)
		r.Mask.Out.L4, r.Key.Out.L4 = [4]byte{}, [4]byte{}
		r.Ports[0].Dst = Range{First: 3, Last: 7}
		mustAdd(t, dp, r)
	}
	dp.mu.Lock()
	defer dp.mu.Unlock()
	if err := dp.reload(); err != nil {
		t.Fatal(err)
	}
	clear(dp.maps.tree.words[:tree.Classes])
	if err := dp.reload(); !errors.Is(err, errTrees) {
		t.Errorf("no roots: %v", err)
	}
}

// 65,536 rules have 4,096 masks, and ranges.
func TestEveryRuleOfManyMasksIsFound(t *testing.T) {
	const masks = 4096
	n := times.Brief(defaultRules, masks)
	dp := openTest(t, Options{MaxRules: n, MaxCounters: 2})
	id := mustCounter(t, dp, "a")
	rules := make([]Rule, n)
	for i := range rules {
		r := exact4(0x0a000000+uint32(i), 0x0b000000+uint32(i), uint16(i), 0, id)
		m := &r.Mask.Out
		m.Addr = [32]byte{255, 255, 255, 255, 255, byte(i & 63 << 2), 255, byte(i >> 6 & 63 << 2)}
		m.L4, r.Key.Out.L4 = [4]byte{}, [4]byte{}
		for j := range r.Key.Out.Addr {
			r.Key.Out.Addr[j] &= m.Addr[j]
		}
		r.Ports[0].Dst = Range{First: uint16(1 + i%1000), Last: uint16(2 + i%1000 + i%77)}
		r.Order = uint32(i)
		rules[i] = r
	}
	mustAdd(t, dp, rules...)
	if got := dp.Stats(); got.Tuples != masks || got.Rules != n {
		t.Errorf("%+v, want %d masks and %d rules", got, masks, n)
	}
	if err := dp.verify(); err != nil {
		t.Fatal(err)
	}
	p := program(t, dp, HookIngress, 1)
	for i := 0; i < n; i += n / 512 {
		runFrame(t, p, udp4(0x0a000000+uint32(i), 0x0b000000+uint32(i), 9, uint16(1+i%1000), 64))
	}
	if got := readOne(t, dp, id).Packets; got != 512 {
		t.Errorf("%d of 512 packets were counted", got)
	}
}

// No window can tell these rules apart, so they form a single list. There is a packet for each position in it: in the walk, and
// behind it in each call of ft_list. The walk itself has fewer rules if they look at more than addresses and ports, such as TTL.
func TestEveryRuleOfALongListIsFound(t *testing.T) {
	for _, n := range []int{16, 17, 18, 81, 82, 200} {
		everyRuleOfAListIsFound(t, n, 0)
	}
	for _, n := range []int{4, 5, 6, 69, 70, 200} {
		everyRuleOfAListIsFound(t, n, 64)
	}
}

func everyRuleOfAListIsFound(t *testing.T, n int, ttl uint8) {
	t.Helper()
	dp := openTest(t, Options{MaxRules: 256, MaxCounters: 256})
	rules := make([]Rule, n)
	for i := range rules {
		r := exact4(0, 0, 0, 0, mustCounter(t, dp, fmt.Sprint(i)))
		for j := range 8 {
			r.Mask.Out.Addr[j] = 0x10
		}
		r.Mask.Out.L4 = [4]byte{}
		r.Ports[0] = Ports{Src: Range{First: uint16(n - i), Last: 65534}, Dst: Range{First: 1, Last: 65534}}
		r.Order = uint32(i)
		if ttl != 0 {
			r.Key.Out.TTL, r.Mask.Out.TTL = ttl, 0xff
		}
		rules[i] = r
	}
	mustAdd(t, dp, rules...)
	forest := &dp.tables.forest
	last := packetOf(&rules[n-1], func() uint64 { return 0 })
	key := tree.Key(*last.words())
	var w tree.Walk
	if forest.set.Walk(&w, &key, tree.NoRank, forest.entryMatches); w.Entries != n {
		t.Errorf("a list of %d rules, want %d", w.Entries, n)
	}
	p := program(t, dp, HookIngress, 1)
	for i := range rules {
		runFrame(t, p, udp4(0x01010101, 0x01010101, uint16(n-i), 9, 64))
	}
	runFrame(t, p, udp4(0x01010101, 0x01010101, 0, 9, 64))
	for i, r := range rules {
		if got := readOne(t, dp, r.Counter).Packets; got != 1 {
			t.Errorf("rule %d of %d counts %d packets, want 1", i, n, got)
		}
	}
}

// A tree keeps its cuts when the rules that look at their word go, and the next programs do not parse that word.
func TestRulesBehindACutOfAWordThatNobodyParsesAreFound(t *testing.T) {
	dp := openTest(t, Options{MaxRules: 1024})
	id := mustCounter(t, dp, "a")
	plain := rangedPorts(id, 1000)
	var tagged []Rule
	for i := range 64 {
		r := plain
		r.Order = uint32(i)
		r.Key.Out.Flags |= FlagTag1
		r.Mask.Out.Flags |= FlagTag1
		r.Key.Out.VLAN[0] = [2]byte{0, byte(i)}
		r.Mask.Out.VLAN[0] = [2]byte{0x0f, 0xff}
		tagged = append(tagged, r)
	}
	mustAdd(t, dp, append([]Rule{plain}, tagged...)...)
	for i := range tagged {
		if err := dp.Remove(tagged[i]); err != nil {
			t.Fatal(err)
		}
	}

	dp.mu.Lock()
	err := dp.reload() // as for a new mask, or for another interface
	root := dp.maps.tree.words[classIPv4]
	dp.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if word := root >> 3 & 31; word != uint64(wordTags) {
		t.Fatalf("the root %#x cuts word %d, want the word of the tags: the test shows nothing", root, word)
	}

	runFrame(t, program(t, dp, HookIngress, 1), udp4(1, 2, 3, 4, 64))
	if got := readOne(t, dp, id).Packets; got != 1 {
		t.Errorf("%d packets, want 1", got)
	}
}

// A program that was loaded before a rule looks at a further word must leave the rule to the programs of the next load.
func TestProgramFindsNoRuleOfAWordThatItDoesNotParse(t *testing.T) {
	for _, inner := range []bool{false, true} {
		dp := openTest(t, Options{MaxRules: 256})
		a := mustCounter(t, dp, "a")
		mustAdd(t, dp, rangedPorts(a, 10))
		if inner {
			r := rangedPorts(mustCounter(t, dp, "inner"), 11)
			r.Key.In.Flags = FlagIPv4
			r.Mask.In.Flags = FlagIPv4
			mustAdd(t, dp, r)
		}
		old := program(t, dp, HookIngress, 1)
		b := mustCounter(t, dp, "b")
		r := rangedPorts(b, 1)
		r.Key.Out.TTL = 5
		r.Mask.Out.TTL = 0xff
		mustAdd(t, dp, r)

		runFrame(t, old, udp4(1, 2, 3, 4, 64))
		if first, second := readOne(t, dp, a).Packets, readOne(t, dp, b).Packets; first != 1 || second != 0 {
			t.Errorf("inner %t: %d packets for the rule that the program knows, %d for that of TTL 5; want 1 and 0", inner, first, second)
		}
	}
}

// rangedPorts is a rule of the trees: from address 1 to address 2, UDP, to ports 1 to 1000.
func rangedPorts(id, order uint32) Rule {
	r := exact4(1, 2, 0, 0, id)
	r.Key.Out.L4 = [4]byte{}
	r.Mask.Out.L4 = [4]byte{}
	r.Ports[0].Dst = Range{First: 1, Last: 1000}
	r.Order = order
	return r
}
