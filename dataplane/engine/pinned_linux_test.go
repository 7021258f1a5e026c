package engine

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
)

// passed opens a socket that sees the UDP frames to a port that no program drops
// before it, and returns how many it has seen.
func passed(t *testing.T, e *lab.End, port uint16) func() uint64 {
	t.Helper()
	fd := -1
	err := e.NS.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		only := []unix.SockFilter{
			{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 36}, // UDP's destination port, behind 20 bytes of IPv4
			{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: uint32(port)},
			{Code: unix.BPF_RET | unix.BPF_K, K: 64},
			{Code: unix.BPF_RET | unix.BPF_K},
		}
		if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(only)), Filter: &only[0]}); err != nil {
			return err
		}
		const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8
		return unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: e.Index, Protocol: all})
	})
	t.Cleanup(func() { unix.Close(fd) })
	if err != nil {
		t.Fatal(err)
	}
	var seen uint64
	return func() uint64 {
		s, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS) // and begins again at 0
		if err != nil {
			t.Fatal(err)
		}
		seen += uint64(s.Packets)
		return seen
	}
}

// An instance starts over the pins of another flow set, with packets before, during and after the restart.
// The start succeeds. A flow of which only the name, the action, the priority or the place has changed keeps
// its counter. Every packet is counted once. Packets that both flow sets drop are dropped all the while.
func TestAnotherFlowSetOverThePinsCountsEachPacketOnce(t *testing.T) {
	t.Parallel()
	const held, dropped, late = 1001, 2000, 1003 // ports: sent all the time; to a flow that drops; sent when the second start has ended
	udp := func(name, text string, priority uint16, action flow.Action) flow.Flow {
		return flow.Flow{Name: name, Match: match(t, text), Priority: priority, Action: action}
	}
	c := func(name, text string) flow.Flow { return udp(name, text, 5, flow.Count) }
	wall, rest := udp("wall", "udp dport 2000", 5, flow.Drop), udp("rest", "udp", 9, flow.Count)
	for _, tt := range []struct {
		name          string
		before, after []flow.Flow
		counts        map[string][]int // which ports
		together      []string         // of the flows of which only the sum is said
		lateDropped   bool
	}{
		{
			name:   "rename",
			before: []flow.Flow{c("a", "udp dport 1001"), wall, rest}, after: []flow.Flow{c("other", "udp dport 1001"), wall, rest},
			counts: map[string][]int{"other": {held}, "wall": {dropped}, "rest": {late, 1002}},
		}, {
			name:   "swap of two names",
			before: []flow.Flow{c("a", "udp dport 1001"), c("b", "udp dport 1002"), wall, rest},
			after:  []flow.Flow{c("b", "udp dport 1001"), c("a", "udp dport 1002"), wall, rest},
			counts: map[string][]int{"b": {held}, "a": {1002}, "wall": {dropped}, "rest": {late}},
		}, {
			name:        "count becomes drop",
			before:      []flow.Flow{c("a", "udp dport 1000-1003"), wall, rest},
			after:       []flow.Flow{udp("a", "udp dport 1000-1003", 5, flow.Drop), wall, rest},
			counts:      map[string][]int{"a": {held, 1002, late}, "wall": {dropped}, "rest": {}},
			lateDropped: true,
		}, {
			name:   "drop becomes count",
			before: []flow.Flow{udp("a", "udp dport 1000-1003", 5, flow.Drop), wall, rest},
			after:  []flow.Flow{c("a", "udp dport 1000-1003"), wall, rest},
			counts: map[string][]int{"a": {held, 1002, late}, "wall": {dropped}, "rest": {}},
		}, {
			name:   "another flow between two of one priority",
			before: []flow.Flow{c("a", "udp dport 1001"), c("b", "udp dport 1000-1003"), wall, rest},
			after:  []flow.Flow{c("a", "udp dport 1001"), udp("new", "udp dport 1003", 5, flow.Drop), c("b", "udp dport 1000-1003"), wall, rest},
			counts: map[string][]int{"a": {held}, "new": {late}, "b": {1002}, "wall": {dropped}, "rest": {}}, lateDropped: true,
		}, {
			name:   "the other way round",
			before: []flow.Flow{c("a", "udp dport 1001"), c("b", "udp dport 1000-1003"), wall, rest},
			after:  []flow.Flow{rest, wall, c("b", "udp dport 1000-1003"), c("a", "udp dport 1001")},
			counts: map[string][]int{"wall": {dropped}, "rest": {}}, together: []string{"a", "b"},
		}, {
			name:   "other priorities",
			before: []flow.Flow{c("a", "udp dport 1001"), udp("b", "udp dport 1000-1003", 6, flow.Count), wall, rest},
			after: []flow.Flow{udp("a", "udp dport 1001", 60, flow.Count), udp("b", "udp dport 1000-1003", 61, flow.Drop),
				udp("wall", "udp dport 2000", 3, flow.Drop), udp("rest", "udp", 70, flow.Count)},
			counts: map[string][]int{"a": {held}, "b": {1002, late}, "wall": {dropped}, "rest": {}}, lateDropped: true,
		}, {
			name:   "a wider match, and the old one's rule with another counter",
			before: []flow.Flow{udp("wall", "udp dport 2000", 5, flow.Drop), c("a", "udp dport 1000-1003"), rest},
			after:  []flow.Flow{udp("wall", "udp dport 2000-2001", 5, flow.Drop), c("a", "udp dport 1000-1005"), rest},
			counts: map[string][]int{"rest": {}}, // a and wall count anew
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, "native", tt.before...)
			b.cfg.XDP.KeepPins = true
			ports := []int{held, 1002, dropped}
			var streams []lab.Stream
			for _, p := range ports {
				streams = append(streams, lab.Stream{Frames: [][]byte{udpTo(uint16(p), 60)}})
			}
			snd, err := b.wire.Far.NewSender(streams, lab.SenderOptions{Rate: 100_000})
			if err != nil {
				t.Fatal(err)
			}
			defer snd.Close()
			e := b.start(t)
			through, lateSeen := passed(t, b.wire.Near, dropped), passed(t, b.wire.Near, late)
			ctx, enough := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			defer wg.Wait()
			defer enough()
			wg.Go(func() {
				if err := snd.Run(ctx, 0); err != nil {
					t.Error(err)
				}
			})
			more := func() {
				t.Helper()
				had := snd.Sent()
				for until := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
					now := snd.Sent()
					if !slices.ContainsFunc([]int{0, 1, 2}, func(i int) bool { return now[i].Packets < had[i].Packets+500 }) {
						return
					}
					if time.Now().After(until) {
						t.Fatal("nothing is sent")
					}
				}
			}
			more()
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			more()
			b.cfg.Flows, b.cfg.XDP.KeepPins = tt.after, false
			e = b.start(t)
			sent := map[int]lab.Tally{late: b.send(t, 500, lab.Stream{Frames: [][]byte{udpTo(late, 60)}})[0]}
			more()
			enough()
			wg.Wait()
			if err := snd.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
			var all backend.Pair
			for i, s := range snd.Sent() {
				sent[ports[i]] = s
			}
			for _, s := range sent {
				all = backend.Add(all, backend.Pair(s))
			}
			r := reader(t, b.cfg)
			for name, ports := range tt.counts {
				var want backend.Pair
				for _, p := range ports {
					want = backend.Add(want, backend.Pair(sent[p]))
				}
				await(t, r, name, want)
				all = backend.Sub(all, want)
			}
			if len(tt.together) > 0 {
				awaitSum(t, e, tt.together, all)
			}
			if n := through(); n != 0 {
				t.Errorf("%d packets passed of %d that a flow drops before and after", n, sent[dropped].Packets)
			}
			want := sent[late].Packets
			if tt.lateDropped {
				want = 0
			}
			if n := lateSeen(); n != want {
				t.Errorf("%d packets passed that were sent when the second start had ended, want %d", n, want)
			}
			for _, entry := range e.writer.Entries() {
				if entry.Continuity.Discontinuities != 0 {
					t.Errorf("%s: %d discontinuities", entry.Name, entry.Continuity.Discontinuities)
				}
			}
			t.Logf("sent, by port: %v", sent)
		})
	}
}

// awaitSum waits until the totals of flows come to want.
func awaitSum(t *testing.T, e *Engine, names []string, want backend.Pair) {
	t.Helper()
	r := reader(t, e.cfg)
	var sum backend.Pair
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		sum = backend.Pair{}
		for _, n := range names {
			h, err := r.Lookup(n)
			if err != nil {
				t.Fatal(err)
			}
			c, err := r.Counter(h)
			if err != nil {
				t.Fatal(err)
			}
			if v, err := c.Load(); err == nil {
				sum = backend.Add(sum, backend.Pair{Packets: v.Packets, Bytes: v.Bytes})
			}
		}
		if sum == want {
			return
		}
	}
	t.Fatalf("%v come to %+v, want %+v", names, sum, want)
}

// A flow that has another name goes on with its total, also with the part that is older than the
// counter, and with its discontinuities.
func TestAnotherNameGoesOnWithTheTotal(t *testing.T) {
	b := newBench(t, "native", flow.Flow{Name: "a", Match: match(t, "udp dport 1001")})
	var want backend.Pair
	for i, name := range []string{"a", "a", "other"} {
		b.cfg.Flows[0].Name, b.cfg.XDP.KeepPins = name, i == 1 // the first run leaves its total alone, the second its counter
		e := b.start(t)
		want = backend.Add(want, backend.Pair(b.send(t, 500, lab.Stream{Frames: [][]byte{udpTo(1001, 60)}})[0]))
		await(t, reader(t, b.cfg), name, want)
		for _, entry := range e.writer.Entries() {
			if n := entry.Continuity.Discontinuities; entry.Name != name || n != uint64(min(i, 1)) {
				t.Errorf("run %d: entry %s has %d discontinuities, want %s with %d", i, entry.Name, n, name, min(i, 1))
			}
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
