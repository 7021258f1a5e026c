package pollrows

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/twocpu"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/xdp"
)

// wireSlots is how many counters take turns.
const wireSlots = 8

// wire counts one packet after the other as the packet path does, each when user space says so: packet n
// on counter n % wireSlots.
type wire struct {
	*wireMemory
	program *ebpf.Program
	options ebpf.RunOptions
}

// newWire loads the program over counters of rules.
func newWire(open *bench.Closers, rules *xdp.Datapath, ids []uint32) (*wire, error) {
	spec, err := loadWire()
	if err != nil {
		return nil, fmt.Errorf("reading the bench's object: %w", err)
	}
	maps, err := rules.Specialize(spec, xdp.HookIngress, 1)
	if err != nil {
		return nil, err
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: maps})
	if err != nil {
		return nil, fmt.Errorf("loading the bench's object: %w", err)
	}
	open.Add(func() error { coll.Close(); return nil })
	w := &wire{program: coll.Programs["wire_count"], options: ebpf.RunOptions{Data: make([]byte, 64)}}
	if w.wireMemory, err = mapped(open, coll.Maps[".data.wire"]); err != nil {
		return nil, err
	}
	for i := range w.slot {
		w.slot[i].Store(uint64(ids[i]) << 29) // FT_COUNTER
	}
	return w, nil
}

// on returns how many of the first n packets were counted on the counter of packet n.
func (w *wire) on(n uint64) uint64 { return (n + wireSlots - 1) / wireSlots }

// exact returns an error if packets is not that.
func (w *wire) exact(n, packets uint64) error {
	if want := w.on(n); packets != want {
		return fmt.Errorf("the counter of packet %d has %d packets, not %d", n, packets, want)
	}
	return nil
}

// silence bounds the wait of the program for a number.
const silence = 20 * time.Second

// count runs the program until it has counted so many packets. A run of the program that nothing was said to
// in its time counts nothing.
func (w *wire) count(packets uint64) error {
	begun := time.Now()
	for was := w.counted.Load(); was < packets; {
		w.options.Repeat = uint32(packets - was)
		if _, err := w.program.Run(&w.options); err != nil {
			return fmt.Errorf("running the bench's program: %w", err)
		}
		now := w.counted.Load()
		switch {
		case now != was:
			was, begun = now, time.Now()
		case time.Since(begun) > silence:
			return twocpu.ErrNoReply
		}
	}
	return nil
}

// wireTrips is how many round trips a round has. On a busy machine the program waits for its CPU at first; a round of
// few trips would be of that.
const wireTrips = 1024

// openWireLive: round trips between this CPU, which stores a word and reads a counter live, and the program on the other
// CPU, which reads the word and counts a packet. From each is taken the way of the word, which is measured before
// and after as the way of a word between two loops in Go.
func openWireLive(_ context.Context, env bench.Env) (*bench.Sides, error) {
	return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
		p, err := twocpu.NewPeer(open, env)
		if err != nil {
			return nil, err
		}
		rules, counters, _, err := liveCounters(open, wireSlots)
		if err != nil {
			return nil, err
		}
		ids := make([]uint32, wireSlots)
		for i := range ids {
			ids[i] = counters[i].id
		}
		w, err := newWire(open, rules, ids)
		if err != nil {
			return nil, err
		}
		oneWay := twocpu.OneWay(twocpu.Words(p))
		trips := twocpu.RoundTrips(p, twocpu.Ends{
			Say: w.said.Store,
			Hear: func(n uint64) error {
				l, want := &counters[n%wireSlots].live, w.on(n)
				for range twocpu.Patience {
					packets, _, err := l.Load()
					if err != nil && !errors.Is(err, shm.ErrBusy) {
						return err
					}
					if packets >= want && err == nil {
						return w.exact(n, packets)
					}
				}
				return twocpu.ErrNoReply
			},
			Reply: func(_, last uint64) error {
				return bench.WithoutSignals(func() error { return w.count(last) })
			},
		})
		return &bench.Sides{
			Ours:      bench.Above(trips, oneWay),
			Ref:       oneWay,
			N:         wireTrips,
			MaxSpread: 0.20, // as shm.visible
			Apart:     true,
		}, nil
	})
}

// openWireMirror: from the count of a packet until a reader on the same CPU that does nothing but read has it from the
// mirror, which the busy poller on the other CPU fills. Against the time between the samples that the reader sees.
func openWireMirror(ctx context.Context, env bench.Env) (*bench.Sides, error) {
	return bench.Acquire(func(open *bench.Closers) (*bench.Sides, error) {
		if env.Peer < 0 {
			return nil, twocpu.OneCPU()
		}
		const counters = 4096
		r, counted, err := startEngine(ctx, open, counters, dataplane.PollConfig{Busy: true, CPU: env.Peer}, true)
		if err != nil {
			return nil, err
		}
		var read [wireSlots]shm.HandleCounter
		ids := make([]uint32, wireSlots)
		for i := range wireSlots { // spread evenly over a cycle
			name := fmt.Sprintf("f%d", (2*i+1)*counters/(2*wireSlots))
			c, err := counted.rules.AllocCounter(name) // that it has
			if err != nil {
				return nil, err
			}
			ids[i] = c.ID
			h, err := r.Lookup(name)
			if err != nil {
				return nil, err
			}
			if read[i], err = r.Counter(h); err != nil {
				return nil, err
			}
		}
		w, err := newWire(open, counted.rules, ids)
		if err != nil {
			return nil, err
		}
		m := &mirrorReader{wire: w, read: read, random: rand.New(rand.NewPCG(12, 0))}
		return &bench.Sides{Ours: m.delays, Ref: m.cycles}, nil
	})
}

// mirrorReader reads counters of a wire in the mirror.
type mirrorReader struct {
	*wire
	read   [wireSlots]shm.HandleCounter
	random *rand.Rand
	cycle  int64 // ns, about
	times  []float64
}

// delays is the median of n times from the count of a packet until the mirror shows it. A packet is counted at any
// moment of a cycle.
func (m *mirrorReader) delays(ctx context.Context, n int) (float64, error) {
	m.times = m.times[:0]
	for range n {
		for until := shm.Now() + m.random.Int64N(max(m.cycle, 10_000)); shm.Now() < until; {
		}
		packet := m.said.Add(1)
		if err := m.count(packet); err != nil {
			return 0, err
		}
		want := m.on(packet)
		v, err := m.await(ctx, int(packet%wireSlots), func(v shm.Value) bool { return v.Packets >= want })
		if err != nil {
			return 0, err
		}
		m.times = append(m.times, float64(shm.Now()-m.at.Load()))
		if err := m.exact(packet, v.Packets); err != nil {
			return 0, err
		}
	}
	return median(m.times), nil
}

// cycles is the median of n poll cycles, each the time between two samples of one counter.
func (m *mirrorReader) cycles(ctx context.Context, n int) (float64, error) {
	m.times = m.times[:0]
	was := int64(0)
	for i := range n + 1 {
		v, err := m.await(ctx, 0, func(v shm.Value) bool { return v.SampledAt > was })
		if err != nil {
			return 0, err
		}
		if i > 0 {
			m.times = append(m.times, float64(v.SampledAt-was))
		}
		was = v.SampledAt
	}
	m.cycle = int64(median(m.times))
	return float64(m.cycle), nil
}

// await reads counter i until it is as wanted.
func (m *mirrorReader) await(ctx context.Context, i int, is func(shm.Value) bool) (shm.Value, error) {
	for tries := 1; ; tries++ {
		v, err := m.read[i].Load()
		if err != nil && !errors.Is(err, shm.ErrBusy) {
			return v, err
		}
		if err == nil && is(v) {
			return v, nil
		}
		if tries%1000 == 0 && ctx.Err() != nil {
			return v, fmt.Errorf("waiting for a poll cycle: %w", ctx.Err())
		}
	}
}

func median(times []float64) float64 {
	slices.Sort(times)
	return times[len(times)/2]
}
