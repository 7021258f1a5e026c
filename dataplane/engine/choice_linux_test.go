package engine

import (
	"fmt"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
)

func udpBetween(from, to uint16, size int) []byte {
	return frame.Sized(size, frame.Eth{Dst: [6]byte{2, 0, 0, 0, 0, 1}, Src: [6]byte{2, 0, 0, 0, 0, 2}},
		frame.IPv4{Src: frame.Addr("198.51.100.1"), Dst: frame.Addr("192.0.2.1")}, frame.UDP{Src: from, Dst: to})
}

// combinations returns a stream for each pair of ports, and sums up what was sent to those of the set.
func combinations(from, to []uint16) (streams []lab.Stream, sum func(sent []lab.Tally, in func(from, to uint16) bool) backend.Pair) {
	for _, f := range from {
		for i, p := range to {
			streams = append(streams, lab.Stream{Frames: [][]byte{udpBetween(f, p, 60+i)}})
		}
	}
	return streams, func(sent []lab.Tally, in func(from, to uint16) bool) (total backend.Pair) {
		for i, s := range sent {
			if in(from[i/len(to)], to[i%len(to)]) {
				total = backend.Add(total, backend.Pair(s))
			}
		}
		return total
	}
}

// A flow with two sets is six rules with one counter: it counts each packet of the sets once, another flow the rest. Its name,
// its action and its priority change in place; with other sets it counts anew.
func TestFlowOfTwoSetsHasOneCounterThatChangesInPlace(t *testing.T) {
	for _, mode := range []string{"native", "tcx"} {
		t.Run(mode, func(t *testing.T) {
			web := flow.Flow{Name: "web", Match: match(t, "udp sport {7, 9} dport {1001, 1003, 1005-1006}")}
			rest := flow.Flow{Name: "rest", Match: match(t, "udp"), Priority: 9}
			b := newBench(t, mode, web, rest)
			e := b.start(t)
			r := reader(t, b.cfg)
			streams, sum := combinations([]uint16{7, 8, 9}, []uint16{1001, 1002, 1003, 1004, 1005, 1006})
			inSets := func(from, to uint16) bool { return from != 8 && to != 1002 && to != 1004 }
			all := func(uint16, uint16) bool { return true }

			sent := b.send(t, 18_000, streams...)
			total := sum(sent, inSets)
			others := sum(sent, all)
			await(t, r, "web", total)
			if rules := e.backends[0].(*xdp.Backend).Inspect().Rules.Stats().Rules; rules != 7 {
				t.Errorf("%d rules, want six of web and one of rest", rules)
			}

			web.Priority, web.Labels = 3, map[string]string{"team": "edge"}
			if d := set(t, e, []flow.Flow{web, rest}, dataplane.SetOptions{}); d.String() != "~ web: priority 0 -> 3, labels \"\" -> \"team=edge\"\n" {
				t.Errorf("difference %q", d)
			}
			sent = b.send(t, 9_000, streams...)
			total = backend.Add(total, sum(sent, inSets))
			others = backend.Add(others, sum(sent, all))
			await(t, r, "web", total)

			web.Action = flow.Drop
			set(t, e, []flow.Flow{web, rest}, dataplane.SetOptions{})
			sent = b.send(t, 9_000, streams...)
			total = backend.Add(total, sum(sent, inSets))
			others = backend.Add(others, sum(sent, all))
			await(t, r, "web", total)
			await(t, r, "rest", backend.Pair{Packets: others.Packets - total.Packets, Bytes: others.Bytes - total.Bytes})

			web.Match = match(t, "udp sport != {7, 9} dport 1001-1003")
			want := "~ web: match \"udp sport {7, 9} dport {1001, 1003, 1005-1006}\" -> \"udp sport != {7, 9} dport 1001-1003\", counts anew\n"
			if d := set(t, e, []flow.Flow{web, rest}, dataplane.SetOptions{}); d.String() != want {
				t.Errorf("difference %q", d)
			}
			sent = b.send(t, 9_000, streams...)
			await(t, r, "web", sum(sent, func(from, to uint16) bool { return from == 8 && to <= 1003 }))
		})
	}
}

// A flow with sets continues its total over a restart, and another set of the same name does not.
func TestFlowOfSetsContinuesOverARestart(t *testing.T) {
	web := flow.Flow{Name: "web", Match: match(t, "udp dport {1001, 1003, 1005}")}
	b := newBench(t, "native", web)
	b.cfg.XDP.KeepPins = true
	streams, sum := combinations([]uint16{9}, []uint16{1001, 1002, 1003})
	odd := func(_, to uint16) bool { return to != 1002 }
	e := b.start(t)
	total := sum(b.send(t, 3000, streams...), odd)
	await(t, reader(t, b.cfg), "web", total)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	total = backend.Add(total, sum(b.send(t, 3000, streams...), odd))

	b.cfg.Flows = []flow.Flow{{Name: "web", Match: match(t, "udp dport {1005,1003, 1001,1003}")}} // as before
	e = b.start(t)
	await(t, reader(t, b.cfg), "web", total)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}

	b.cfg.Flows = []flow.Flow{{Name: "web", Match: match(t, "udp dport {1001, 1002}")}}
	e = b.start(t)
	other := sum(b.send(t, 3000, streams...), func(_, to uint16) bool { return to != 1003 })
	await(t, reader(t, b.cfg), "web", other)
}

// A flow of sets in hardware is several rules of a device with one counters object.
func TestFlowOfSetsInHardwareHasOneCounter(t *testing.T) {
	web := flow.Flow{Name: "web", Match: match(t, "ipv4 udp sport {7, 9} dport {1001, 1003}")}
	rest := flow.Flow{Name: "rest", Match: match(t, "ipv4 udp"), Priority: 9}
	b := newSoftBench(t, web, rest)
	b.run(t)
	wire := &bench{wire: b.Wire}
	streams, sum := combinations([]uint16{7, 8, 9}, []uint16{1001, 1002, 1003})
	sent := wire.send(t, 9000, streams...)
	want := sum(sent, func(from, to uint16) bool { return from != 8 && to != 1002 })
	if got := b.total(t, "web"); got != want {
		t.Errorf("web: %+v, want %+v", got, want)
	}
	if by := b.e.flows["web"].source.Backend; by != "rdma" {
		t.Errorf("web is counted by %s: %v", by, fmt.Sprint(b.placementOf(t, "web").Rejected))
	}
}
