package rdma

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/internal/lab/soft"
	"github.com/flowtally/flowtally/shm"
)

// 4,096 flows are counted by a firmware that takes 100 µs per read. The kernel or the library counts the commands, so the
// backend cannot fool the test. Counters in bulk need a libmlx5 of rdma-core 60.0 or later, which the host may not have.
func TestTheBudgetIsKept(t *testing.T) {
	const flows = 4096
	for _, c := range []struct {
		name               string
		stack              soft.Stack
		command, delayed   string
		without            []string
		perSecond, objects int
	}{
		{"verbs", &kernel, "COUNTERS_READ", "COUNTERS_READ", []string{"devx"}, 4000, flows},
		{"devx in bulk", &libraries, "QUERY_FLOW_COUNTER", "DEVX_OBJ_QUERY", nil, 200, flows / bulkCounters},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &softwareNIC{soft.NewNIC(t, c.stack)}
			s.Env.Without = c.without
			s.Env.Delay = []ibvtest.Delay{{Verb: c.delayed, Time: 100 * time.Microsecond}}
			s.Config.RDMA.CommandsPerSecond = c.perSecond
			b := s.open(t)
			began, before := shm.Now(), s.Calls(t, c.command)
			all := make([]backend.Placed, flows)
			for i := range all {
				all[i] = placedUDP(t, fmt.Sprint(i), 1000+i, uint32(i))
			}
			in, err := b.Install(t.Context(), all)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d flows were installed in %v", flows, time.Duration(shm.Now()-began).Round(time.Millisecond))
			ids := make([]uint32, flows)
			for i := range ids {
				ids[i] = in[i].ID
			}
			pass := time.Duration(c.objects) * time.Second / time.Duration(c.perSecond)
			truth := s.drip(t, 1000+flows-1)
			defer truth.stop()

			// Measure the age of a sample in commands, which do not depend on the load of the CPU: since then, every
			// other slot was read once. TestValuesAreAsOldAsTheBudgetImplies measures the age in time.
			dst, at := make([]backend.Pair, flows), make([]int64, flows)
			type look struct {
				at       int64
				commands uint64
			}
			var looks []look
			var oldest time.Duration
			most := uint64(c.objects + c.objects/4)
			// On a busy machine the firmware is slower than the budget allows, so go on until there was a whole pass.
			for start := shm.Now(); shm.Now()-start < int64(3*pass+time.Second) || oldest == 0 || truth.checked == 0; time.Sleep(10 * time.Millisecond) {
				if shm.Now()-start > int64(2*time.Minute) {
					t.Fatalf("after two minutes the oldest value of a pass is %v old, and %d ages were compared with the truth", oldest, truth.checked)
				}
				commands := s.Calls(t, c.command) // first, because the samples may become younger
				looks = append(looks, look{shm.Now(), commands})
				if err := b.ReadTimed(ids, dst, at); err != nil {
					t.Fatal(err)
				}
				truth.check(t, dst[flows-1], at[flows-1])
				first := slices.Min(at)
				if first < start {
					continue // some slot was not read since Install
				}
				oldest = max(oldest, time.Duration(shm.Now()-first))
				i, _ := slices.BinarySearchFunc(looks, first, func(l look, at int64) int { return cmp.Compare(l.at, at) })
				if i < len(looks) && commands-looks[i].commands > most {
					t.Fatalf("%d commands were given since the oldest value was read, want %d at most", commands-looks[i].commands, most)
				}
			}
			commands, took := s.Calls(t, c.command)-before, time.Duration(shm.Now()-began)
			t.Logf("%d commands in %v: %.0f of %d per second; a pass is %v by the budget, the oldest value was %v old",
				commands, took.Round(time.Millisecond), float64(commands)/took.Seconds(), c.perSecond, pass, oldest.Round(time.Millisecond))
			if limit := took.Seconds()*float64(c.perSecond) + burst.Seconds()*float64(c.perSecond) + 1; float64(commands) > limit+1 {
				t.Errorf("%d commands, the budget has %.0f", commands, limit)
			}
		})
	}
}

// drip returns a sender of a few frames at a time to one port.
func (s *softwareNIC) drip(t *testing.T, port int) *truth {
	t.Helper()
	eth := frame.Eth{Dst: [6]byte{2, 0, 0, 0, 0, 1}, Src: [6]byte{2, 0, 0, 0, 0, 2}}
	f := frame.Sized(60, eth, frame.IPv4{Src: frame.Addr("198.51.100.1"), Dst: frame.Addr("192.0.2.1")}, frame.UDP{Src: 9, Dst: uint16(port)})
	snd, err := s.Wire.Far.NewSender([]lab.Stream{{Frames: [][]byte{f}}}, lab.SenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &truth{sender: snd}
}

// truth knows how many frames of a flow had arrived at which time.
type truth struct {
	sender  *lab.Sender
	arrived []arrival
	checked int // samples that were compared with an arrival
}

// arrival says that packets had arrived at a time.
type arrival struct {
	at      int64
	packets uint64
}

// check checks that a sample has every packet that had arrived by its time, and none that was not sent. Then it sends more.
func (x *truth) check(t *testing.T, v backend.Pair, at int64) {
	t.Helper()
	for i := len(x.arrived) - 1; i >= 0 && at != 0; i-- {
		if x.arrived[i].at <= at {
			x.checked++
			if v.Packets < x.arrived[i].packets {
				t.Fatalf("a value of %d packets is said to be of %d; %d packets had arrived at %d: it is older than it says",
					v.Packets, at, x.arrived[i].packets, x.arrived[i].at)
			}
			break
		}
	}
	if sent := x.sender.Sent()[0].Packets; v.Packets > sent {
		t.Fatalf("%d packets counted of %d sent", v.Packets, sent)
	}
	if err := x.sender.Run(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if err := x.sender.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	x.arrived = append(x.arrived, arrival{at: shm.Now(), packets: x.sender.Sent()[0].Packets})
}

func (x *truth) stop() { x.sender.Close() }

// The test steps the reader by hand, with a clock of its own.
func TestAFailingPoolDelaysNoOther(t *testing.T) {
	var now int64 = 1
	const pools, perSecond = 10, 100
	n := &fakeNIC{by: withDevX, bulk: 1}
	r := newReader(func() int64 { return now }, newPacer(perSecond), time.Millisecond, slog.New(slog.DiscardHandler), func(error) {}, func() {})
	var all []*slotPool
	for range pools {
		b, _ := n.newBulk()
		h := newPool(b)
		h.take(new(slotSample))
		all = append(all, h)
		r.add(h)
	}
	run := func(seconds int) (reads map[*slotPool]int) {
		reads = make(map[*slotPool]int)
		for end := now + int64(seconds)*int64(time.Second); now < end; {
			asked := make([]int64, pools)
			for i, b := range all {
				asked[i] = b.asked
			}
			wait := r.step()
			for i, b := range all {
				if b.asked != asked[i] {
					reads[b]++
				}
			}
			now += max(wait, int64(10*time.Microsecond))
		}
		return reads
	}
	reads := run(10)
	for _, b := range all {
		if reads[b] < 99 || reads[b] > 101 {
			t.Errorf("a pool was read %d times in 10 s, want 100 as every other", reads[b])
		}
	}
	if n.commands > 10*perSecond+2 {
		t.Errorf("%d commands in 10 s", n.commands)
	}
	// A failing pool is read more and more rarely, and costs the others nothing.
	broken := all[0].bulk.(*fakeBulk)
	broken.closed = true
	reads = run(60)
	if reads[all[1]] < 650 || reads[all[0]] != 0 {
		t.Errorf("beside a pool that fails, another was read %d times in 60 s", reads[all[1]])
	}
	r.mu.Lock()
	failures := all[0].failures
	r.mu.Unlock()
	if failures < giveUp || failures > 25 { // 10 ms, doubling to 5 s
		t.Errorf("it was asked %d times in 60 s", failures)
	}
	failing, err, _ := r.health(now)
	if failing != 1 || err == nil {
		t.Errorf("%d failing, %v", failing, err)
	}
	broken.closed = false
	if reads = run(15); reads[all[0]] < 90 {
		t.Errorf("mended, it was read %d times in 15 s", reads[all[0]])
	}
	if got := r.givenUp(all[0]); got != nil {
		t.Errorf("mended, it is given up: %v", got)
	}
}

func TestSamplesThatAreTooOldAreACondition(t *testing.T) {
	var now int64 = 1
	n := &fakeNIC{by: withDevX, bulk: 1}
	d := &device{name: "fake0", netdev: "eth0", levels: [2]levelTable{newLevelTable(), newLevelTable()}, open: n, now: func() int64 { return now }}
	read := func(commandsPerSecond, counters int) []dataplane.Condition {
		d.reader = newReader(d.now, newPacer(commandsPerSecond), time.Millisecond, slog.New(slog.DiscardHandler), func(error) {}, func() {})
		for range counters {
			b, _ := n.newBulk()
			d.reader.add(newPool(b))
		}
		if c := d.conditions(); len(c) != 0 {
			t.Errorf("conditions at once: %+v", c)
		}
		for end := now + int64(10*time.Second); now < end; {
			now += max(d.reader.step(), 1)
		}
		return d.conditions()
	}
	c := read(1, 3)
	if len(c) != 1 || c[0].Code != "rdma-budget" {
		t.Fatalf("conditions %+v, want rdma-budget", c)
	}
	lab.Step(t, c[0].Fix, "raise rdma.commands_per_second and restart")
	if c := read(10, 3); len(c) != 0 {
		t.Errorf("conditions %+v with a higher limit", c)
	}
	lab.Step(t, c[0].Fix, "count fewer flows in hardware")
	if c := read(1, 1); len(c) != 0 {
		t.Errorf("conditions %+v with fewer flows", c)
	}
}
