package xdp

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/lab/times"
	"github.com/flowtally/flowtally/xdp/tree"
)

const (
	childEnv = "FLOWTALLY_XDP_CHILD" // of TestKilledProcessLeavesProgramsThatCountEveryPacket
	crowdEnv = "FLOWTALLY_XDP_CROWD" // of TestAnUnfinishedChangeOfManyRulesLeavesThoseOfBefore
	moveEnv  = "FLOWTALLY_XDP_MOVE"  // of TestMoveKilledAtAnyStepLeavesAtMostOneProgram
	setsEnv  = "FLOWTALLY_XDP_SETS"  // of TestProcessKilledWhileSetsMoveLeavesThemFilled
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		fmt.Fprintln(os.Stderr, "FAIL:", child(dir))
		os.Exit(1)
	}
	if dir := os.Getenv(crowdEnv); dir != "" {
		fmt.Fprintln(os.Stderr, "FAIL:", addCrowd(dir))
		os.Exit(1)
	}
	if args := os.Getenv(moveEnv); args != "" {
		fmt.Fprintln(os.Stderr, "FAIL:", moveUntilKilled(args))
		os.Exit(1)
	}
	if dir := os.Getenv(setsEnv); dir != "" {
		fmt.Fprintln(os.Stderr, "FAIL:", churnSets(dir))
		os.Exit(1)
	}
	_ = lab.Isolate(lab.ForTests) // without the privilege, each test names the privilege that it needs
	os.Exit(m.Run())
}

// child is the process that TestKilledProcessLeavesProgramsThatCountEveryPacket kills: it changes rules without
// end, so that the kill may come at any instant of a change.
func child(dir string) error {
	dp, err := Open(Options{PinDir: dir, MaxRules: 2048})
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	w := world{rng}
	var live []Rule
	for i := uint32(1); ; i++ {
		c, err := dp.AllocCounter(fmt.Sprint("churn-", i%64))
		if err != nil {
			return err
		}
		mask := w.mask(1 + rng.IntN(2))
		for range 5 {
			r := w.rule(mask, rng.Uint32(), c.ID)
			r.Priority, r.Drop = 9, false
			if err := dp.Add(r); err == nil {
				live = append(live, r)
			}
		}
		if n := len(live); n > 0 {
			moved := slices.Clone(live)
			for j := range moved {
				moved[j].Order = rng.Uint32()
			}
			if err := dp.Exchange(live, moved); err != nil {
				return err
			}
			live = moved
		}
		for len(live) > 20 {
			if err := dp.Remove(live[0]); err != nil {
				return err
			}
			live = live[1:]
		}
	}
}

// A process changes rules under traffic. It is killed again and again, and the next one adopts its pins. Rules that nobody changed must
// count every packet, and the adopted tables must be consistent.
func TestKilledProcessLeavesProgramsThatCountEveryPacket(t *testing.T) {
	const flows = 4
	packets, kills := times.Brief(uint64(2_000_000), 500_000), times.Brief(12, 3)
	rng := seed.Rand(t)
	w := testWire(t)
	dir := pinDir(t)
	dp, err := Open(Options{PinDir: dir, MaxRules: 2048})
	if err != nil {
		t.Fatal(err)
	}
	ids := floodRules(t, dp, flows)
	attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	if err := dp.Close(); err != nil {
		t.Fatal(err)
	}
	s := flood(t, w.Far, flows, 100, lab.SenderOptions{Rate: 400_000})
	done := make(chan error, 1)
	go func() { done <- s.Run(context.Background(), packets) }()
	for kill := range kills {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+dir)
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(100+rng.IntN(250)) * time.Millisecond)
		cmd.Process.Kill()
		if err := cmd.Wait(); err == nil || strings.Contains(out.String(), "FAIL") {
			t.Fatalf("kill %d: the child ended by itself: %v\n%s", kill, err, out.String())
		}
		start := time.Now()
		dp, err := Open(Options{PinDir: dir, MaxRules: 2048})
		if err != nil {
			t.Fatalf("kill %d: %v", kill, err)
		}
		t.Logf("kill %d: %d rules adopted in %v", kill, dp.Stats().Rules, time.Since(start))
		if err := dp.verify(); err != nil {
			t.Fatalf("kill %d: %v", kill, err)
		}
		if n := len(dp.Attachments()); n != 1 {
			t.Fatalf("kill %d: %d attachments", kill, n)
		}
		for i := range flows {
			c, err := dp.AllocCounter(ownerName(i))
			if err != nil || !c.Adopted || c.ID != ids[i] {
				t.Fatalf("kill %d: counter of flow %d: %+v, %v", kill, i, c, err)
			}
		}
		if err := dp.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	dp, err = Open(Options{PinDir: dir, MaxRules: 2048})
	if err != nil {
		t.Fatal(err)
	}
	defer dp.Destroy()
	compareCounts(t, dp, ids, s)
}

// crowdRules is the number of rules that addCrowd adds.
const crowdRules = 8000

// addCrowd is the process that TestAnUnfinishedChangeOfManyRulesLeavesThoseOfBefore kills: it adds rules with masks of
// their own in one change, and waits to be killed.
func addCrowd(dir string) error {
	dp, err := Open(Options{PinDir: dir, MaxRules: 2 * crowdRules})
	if err != nil {
		return err
	}
	c, err := dp.AllocCounter("crowd")
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(1, 1))
	rules := make([]Rule, crowdRules)
	for i := range rules {
		r := &rules[i]
		r.Counter, r.Priority, r.Order = c.ID, 9, uint32(i)
		r.Key.Out.Flags, r.Mask.Out.Flags = FlagIPv4, FlagIPv4
		for b := range 8 {
			r.Mask.Out.Addr[b] = byte(rng.Uint32() & rng.Uint32() & rng.Uint32())
			r.Key.Out.Addr[b] = byte(rng.Uint32()) & r.Mask.Out.Addr[b]
		}
	}
	fmt.Println("adding")
	if err := dp.Add(rules...); err != nil {
		return err
	}
	fmt.Println("added")
	select {}
}

// A process is killed at some instant of a change that adds many rules. The next process has the rules from before the
// change, or all of them, and those from before have counted every packet.
func TestAnUnfinishedChangeOfManyRulesLeavesThoseOfBefore(t *testing.T) {
	const flows = 4
	kills := 3
	if os.Getenv("FLOWTALLY_STRESS") != "" {
		kills = 50
	}
	rng := seed.Rand(t)
	w := testWire(t)
	for kill := range kills {
		dir := pinDir(t)
		dp, err := Open(Options{PinDir: dir, MaxRules: 2 * crowdRules})
		if err != nil {
			t.Fatal(err)
		}
		ids := floodRules(t, dp, flows)
		attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
		before := dp.Stats().Rules
		if err := dp.Close(); err != nil {
			t.Fatal(err)
		}
		s := flood(t, w.Far, flows, 100, lab.SenderOptions{Rate: 50_000})
		ctx, enough := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx, 0) }()

		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), crowdEnv+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		words := bufio.NewScanner(out)
		words.Scan()
		time.AfterFunc(time.Duration(rng.IntN(1000))*time.Millisecond, func() { cmd.Process.Kill() })
		added := words.Scan() // until the end, or until it has added all
		cmd.Wait()

		began := time.Now()
		if dp, err = Open(Options{PinDir: dir, MaxRules: 2 * crowdRules}); err != nil {
			t.Fatalf("kill %d: %v", kill, err)
		}
		after := dp.Stats().Rules
		t.Logf("kill %d: %d rules adopted in %v; all were added: %t", kill, after, time.Since(began), added)
		if all := before + crowdRules; after != all && (added || after != before) {
			t.Errorf("kill %d: %d rules, want %d or %d", kill, after, before, all)
		}
		if err := dp.verify(); err != nil {
			t.Errorf("kill %d: %v", kill, err)
		}
		enough()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		compareCounts(t, dp, ids, s)
		if err := dp.Destroy(); err != nil {
			t.Fatal(err)
		}
	}
}

// verify compares the tables in memory with the model.
func (dp *Datapath) verify() error {
	dp.mu.Lock()
	defer dp.mu.Unlock()
	t := dp.tables
	slots := 0
	for _, s := range t.table.slots {
		if !free(s) {
			slots++
		}
	}
	want := 0
	for _, u := range t.tuples {
		if u == nil {
			continue
		}
		for _, c := range u.chains {
			if !u.hashed {
				if !t.owns(u, c.entries[0]) || len(u.chains) != 1 {
					return fmt.Errorf("tuple %d: its single slot is not its key's", u.id)
				}
				continue
			}
			want++
			if !probeSlots(&t.table, c.hash, c.entries[0]) {
				return fmt.Errorf("tuple %d: a key is not found", u.id)
			}
		}
	}
	for _, u := range t.treeTuples {
		for _, c := range u.chains {
			r := t.rule(u, c.entries[0])
			if both := FlagIPv4 | FlagIPv6; r.Key.Out.Flags&both == both {
				continue // no frame has both
			}
			key := tree.Key(*r.Key.words())
			for level, p := range r.Ports { // the first ports of the ranges
				k := []*Headers{&r.Key.Out, &r.Key.In}[level]
				binary.BigEndian.PutUint16(k.L4[:], binary.BigEndian.Uint16(k.L4[:])|p.Src.First)
				binary.BigEndian.PutUint16(k.L4[2:], binary.BigEndian.Uint16(k.L4[2:])|p.Dst.First)
				key = tree.Key(*r.Key.words())
			}
			e := t.forest.set.Lookup(&key, t.forest.entryMatches)
			if e == 0 || t.entries.rank(unitOfTree(e)) > r.rank() || c.node != treeEntryAt(c.entries[0]) {
				return fmt.Errorf("the rule of rank %#x is not found in the trees", r.rank())
			}
		}
	}
	if slots != want {
		return fmt.Errorf("%d slots are taken by %d keys", slots, want)
	}
	return nil
}
