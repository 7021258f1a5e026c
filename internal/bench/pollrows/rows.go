package pollrows

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/inject"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/xdp"
)

// Rows returns the rows of the poller. They hold no resource until opened.
func Rows() []bench.Row {
	const floor = "memcpy of the bytes read (16 per counter and CPU) and written (24 per counter)"
	return []bench.Row{
		{
			Name:  "live.read",
			Ours:  "a total summed in the kernel's own memory (`Live.Load`)",
			Ref:   "bare atomic loads of the same words, Go",
			Bound: 2.0,
			Open:  openLive,
		},
		{
			Name:  "wire.live",
			Ours:  "from a packet counted on one CPU until `Live.Load` returns it on the other, p50",
			Ref:   "one cache line ping-pong, one way",
			Bound: 3.0,
			Unit:  "ns, p50",
			Time:  20 * time.Second,
			Open:  openWireLive,
		},
		{
			Name:  "wire.mirror",
			Ours:  "from a packet counted until `HandleCounter.Load` returns it, a busy poller over 4,096 counters, p50",
			Ref:   "one poll cycle, p50",
			Bound: 2.0,
			Unit:  "ns, p50",
			Open:  openWireMirror,
		},
		{
			Name:  "poll.xdp.4k",
			Ours:  "a poll cycle of 4,096 counters, from the kernel to the mirror",
			Ref:   "a loop in Go: the sums of the same slots into rows, and a memcpy of the rows",
			Bound: 1.5,
			Unit:  "ns per cycle",
			Open:  openPoll,
		},
		{
			Name:  "poll.cold.10k",
			Ours:  "a poll cycle of 10,000 counters each 10 ms, with cold caches and the waking",
			Ref:   floor + ", by a goroutine woken as often, as cold",
			Bound: 1.5,
			Unit:  "ns per cycle",
			Open:  openCold(10_000),
		},
		{
			Name:  "poll.cold.64k",
			Ours:  "the same of 65,536 counters",
			Ref:   floor + ", by a goroutine woken as often, as cold",
			Bound: 2.4,
			Unit:  "ns per cycle",
			Open:  openCold(1 << 16),
		},
		{
			Name:  "poll.cpus.64",
			Ours:  "a poll cycle of 65,536 counters on 64 CPUs, one in a hundred has changed, neighbours",
			Ref:   "copy of the changed slots from their places (16 per counter and CPU) and 24 per counter",
			Bound: 4,
			Unit:  "ns per cycle",
			Open:  openCPUs(false),
		},
		{
			Name:  "poll.cpus.64.spread",
			Ours:  "the same, at random places",
			Ref:   "the same, of counters at random places",
			Bound: 4,
			Unit:  "ns per cycle",
			Full:  true,
			Open:  openCPUs(true),
		},
		{
			Name:     "poll.idle.0",
			Ours:     "CPU time of a second of an idle instance without flows",
			Ref:      "an idle Go process that wakes as often",
			Bound:    3,
			Unit:     "ns per second",
			Full:     true,
			Rounds:   7,
			Openings: 1,
			Time:     30 * time.Second,
			Open:     openIdle(0),
		},
		{
			Name:     "poll.idle.10k",
			Ours:     "the same with 10,000 flows",
			Ref:      "an idle Go process that wakes as often, and reads the slots",
			Bound:    3,
			Unit:     "ns per second",
			Rounds:   7,
			Openings: 1,
			Full:     true,
			Time:     30 * time.Second,
			Open:     openIdle(10_000),
		},
	}
}

// openPoll runs an engine whose poller is busy on the CPU of the bench. A round
// of ours sleeps while it makes n cycles, and takes the CPU time of the process.
func openPoll(ctx context.Context, env bench.Env) (*bench.Sides, error) {
	return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
		const counters = 4096
		r, _, err := startEngine(ctx, open, counters, dataplane.PollConfig{Busy: true, CPU: env.CPU}, false)
		if err != nil {
			return nil, err
		}
		plain, err := newPlainCycle(counters)
		if err != nil {
			return nil, err
		}
		return &bench.Sides{
			Ours: func(ctx context.Context, n int) (float64, error) { return cycles(ctx, r, n) },
			Ref: bench.Timed(bench.ThreadCPU, func(n int) {
				for range n {
					plain.run()
				}
			}),
		}, nil
	})
}

// plainCycle is a poll cycle without protocol, as somebody would write it first. The memcpy of the other rows is no floor for a
// short cycle: on a CPU with wide vectors it takes a seventh of the time in which any loop has looked at the slots.
type plainCycle struct {
	slots  [][][2]uint64 // the packets and bytes of each counter, by CPU
	rows   []shm.Value
	mirror []shm.Value
}

func newPlainCycle(counters int) (*plainCycle, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("reading the possible CPUs: %w", err)
	}
	c := &plainCycle{
		rows:   make([]shm.Value, counters),
		mirror: make([]shm.Value, counters),
	}
	for cpu := range cpus {
		slots := make([][2]uint64, counters)
		for i := range slots {
			slots[i] = [2]uint64{uint64(i), uint64(cpu)}
		}
		c.slots = append(c.slots, slots)
	}
	return c, nil
}

func (c *plainCycle) run() {
	now := shm.Now()
	for i := range c.rows {
		var packets, bytes uint64
		for _, slots := range c.slots {
			packets += slots[i][0]
			bytes += slots[i][1]
		}
		c.rows[i] = shm.Value{Packets: packets, Bytes: bytes, SampledAt: now}
	}
	copy(c.mirror, c.rows)
}

// touched is as much memory as a cycle cannot but read and write, to copy from and to.
func touched(counters int) (from, to []byte, err error) {
	cpus, err := ebpf.PossibleCPU() // that many slots has a counter
	if err != nil {
		return nil, nil, fmt.Errorf("reading the possible CPUs: %w", err)
	}
	const read, written = 16, 24 // per counter and CPU; per counter
	size := counters * (read*cpus + written)
	from, to = make([]byte, size), make([]byte, size)
	for i := range from {
		from[i], to[i] = byte(i), 1 // pages of their own, not all the zero page
	}
	return from, to, nil
}

// startEngine starts an engine with so many counters in the kernel, named f0, f1 and so on, and returns a reader of its
// mirror and the counters. still: the poller sees that no counter changes.
func startEngine(ctx context.Context, open *bench.Closers, counters int, poll dataplane.PollConfig, still bool) (*shm.Reader, *kernelCounters, error) {
	dir, err := open.MirrorDir()
	if err != nil {
		return nil, nil, err
	}
	rules, err := xdp.Open(xdp.Options{MaxRules: max(1, counters), MaxCounters: max(1, counters)})
	if err != nil {
		return nil, nil, err
	}
	open.Add(rules.Destroy)
	config := dataplane.Config{
		Instance: "bench",
		Backend:  "sim", // which asks for no interface; the backend is handed in
		Mirror:   dataplane.MirrorConfig{Path: filepath.Join(dir, "bench.mirror"), Counters: counters},
		Poll:     poll,
	}
	for i := range counters {
		config.Flows = append(config.Flows, flow.Flow{Name: fmt.Sprintf("f%d", i), Priority: uint16(i)})
	}
	counted := &kernelCounters{rules: rules, still: still}
	e, err := engine.New(inject.Backends(ctx, counted), config, engine.Options{})
	if err != nil {
		return nil, nil, err
	}
	open.Add(e.Close)
	r, err := shm.OpenReader(config.Mirror.Path)
	if err != nil {
		return nil, nil, err
	}
	open.Add(r.Close)
	return r, counted, nil
}

// cycles waits for n poll cycles and returns the CPU time of one.
func cycles(ctx context.Context, r *shm.Reader, n int) (float64, error) {
	first := r.Status().Cycle
	start, err := bench.ProcessCPU()
	if err != nil {
		return 0, err
	}
	for {
		time.Sleep(time.Millisecond)
		now, err := bench.ProcessCPU()
		if err != nil {
			return 0, err
		}
		if done := r.Status().Cycle - first; done >= uint64(n) && done > 0 {
			return float64(now-start) / float64(done), nil
		}
		if err := ctx.Err(); err != nil {
			return 0, fmt.Errorf("waiting for %d poll cycles: %w", n, err)
		}
	}
}
