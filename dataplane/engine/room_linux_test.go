package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
)

func flowsTo(t *testing.T, prefix string, from, n int) []flow.Flow {
	t.Helper()
	out := make([]flow.Flow, n)
	for i := range out {
		out[i] = flow.Flow{Name: fmt.Sprint(prefix, from+i), Match: match(t, fmt.Sprintf("udp dport %d", 1000+from+i))}
	}
	return out
}

// Flows that did not fit leave no trace: fewer of the same flows count.
func TestFlowsThatDidNotFitCanBeAddedAgain(t *testing.T) {
	b := newBench(t, "native")
	b.cfg.XDP.MaxFlows, b.cfg.Mirror.Counters = 64, 1024 // slots of the mirror cool down for a second
	e := b.start(t)
	r := reader(t, b.cfg)
	var first uint64
	for round := range 4 {
		if _, err := e.AddFlows(t.Context(), flowsTo(t, "f", 0, 70)...); !errors.Is(err, dataplane.ErrFull) {
			t.Fatalf("70 flows in tables of 64: %v", err)
		}
		if _, err := e.AddFlows(t.Context(), flowsTo(t, "f", 0, 64)...); err != nil {
			t.Fatal(err)
		}
		for _, port := range []int{0, 31, 63} {
			first = b.send(t, 1000, lab.Stream{Frames: [][]byte{udpTo(uint16(1000+port), 60)}})[0].Packets
			await(t, r, fmt.Sprint("f", port), backend.Pair{Packets: first, Bytes: first * 60})
		}
		var names []string
		for i := range 64 {
			names = append(names, fmt.Sprint("f", i))
		}
		if err := e.RemoveFlows(t.Context(), names...); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}

// The error of a full table names the limit that was reached. Masks have no limit.
func TestWhatIsFullIsNamed(t *testing.T) {
	b := newBench(t, "native")
	b.cfg.XDP.MaxFlows = 128
	e := b.start(t)
	var masks []flow.Flow
	for i := range 128 {
		masks = append(masks, flow.Flow{Name: fmt.Sprint("m", i), Match: match(t, fmt.Sprintf("ipv4 src 0.0.0.0/%d dst 0.0.0.0/%d", 1+i%8, 1+i/8))})
	}
	_, err := e.AddFlows(t.Context(), flowsTo(t, "f", 0, 129)...)
	if !errors.Is(err, dataplane.ErrFull) || !strings.Contains(err.Error(), "; xdp.max_flows is 128") {
		t.Errorf("129 flows: %v", err)
	}
	if _, err := e.AddFlows(t.Context(), masks...); err != nil {
		t.Errorf("as many masks as there is room for: %v", err)
	}
}

// A restart over full tables, after flows have gone, finds every rule again:
// its place in the order of addition is another one, and there is no room for two of each.
func TestFullTablesAreTakenUp(t *testing.T) {
	flows := flowsTo(t, "f", 0, 64)
	b := newBench(t, "native", flows...)
	b.cfg.XDP.MaxFlows, b.cfg.XDP.KeepPins = 64, true
	e := b.start(t)
	if err := e.RemoveFlows(t.Context(), "f0", "f40"); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	sent := b.send(t, 1000, lab.Stream{Frames: [][]byte{udpTo(1001, 60)}})[0]
	b.cfg.Flows = append(append([]flow.Flow{}, flows[1:40]...), flows[41:]...)
	b.cfg.XDP.KeepPins = false
	e = b.start(t)
	await(t, reader(t, b.cfg), "f1", backend.Pair(sent))
	if _, err := e.AddFlows(t.Context(), flows[0], flows[40]); err != nil {
		t.Fatal(err)
	}
}

// As before, where the flows that stay name a backend, so that they are placed after those that need the room.
func TestFullTablesMakeRoomForTheFirstPart(t *testing.T) {
	b := newBench(t, "native", flowsTo(t, "old", 0, 64)...)
	for i := range b.cfg.Flows[32:] {
		b.cfg.Flows[32+i].Backend = flow.XDP
	}
	b.cfg.XDP.MaxFlows, b.cfg.XDP.KeepPins = 64, true
	if err := b.start(t).Close(); err != nil {
		t.Fatal(err)
	}
	sent := backend.Pair(b.send(t, 1000, lab.Stream{Frames: [][]byte{udpTo(1063, 60)}})[0])
	b.cfg.Flows = append(flowsTo(t, "new", 0, 32), b.cfg.Flows[32:]...)
	for i := range b.cfg.Flows[:32] { // the flows that are gone have other matches
		b.cfg.Flows[i].Match = match(t, fmt.Sprintf("udp dport %d", 2000+i))
	}
	b.cfg.Flows[63].Name, b.cfg.XDP.KeepPins = "renamed", false
	e := b.start(t)
	for _, entry := range e.writer.Entries() {
		if entry.Continuity.Discontinuities != 0 {
			t.Errorf("%+v", entry)
		}
	}
	await(t, reader(t, b.cfg), "renamed", sent)
}

// Another configuration over full tables: flows that are not configured any more make room.
func TestFullTablesMakeRoomForOtherFlows(t *testing.T) {
	b := newBench(t, "native", flowsTo(t, "old", 0, 64)...)
	b.cfg.XDP.MaxFlows, b.cfg.XDP.KeepPins = 64, true
	if err := b.start(t).Close(); err != nil {
		t.Fatal(err)
	}
	sent := b.send(t, 1000, lab.Stream{Frames: [][]byte{udpTo(1063, 60)}})[0]
	b.cfg.Flows = append(flowsTo(t, "new", 0, 63), b.cfg.Flows[63])
	b.cfg.XDP.KeepPins = false
	b.start(t)
	r := reader(t, b.cfg)
	await(t, r, "old63", backend.Pair(sent))
	sent = b.send(t, 1000, lab.Stream{Frames: [][]byte{udpTo(1000, 60)}})[0]
	await(t, r, "new0", backend.Pair(sent))
}

// Another configuration over full tables has flows that the trees refuse. Its start drops nothing: the next start, with the
// flows of before, goes on from their counters.
func TestFullTablesStayWhereTheTreesRefuse(t *testing.T) {
	b := newBench(t, "native", flowsTo(t, "old", 0, 64)...)
	b.cfg.XDP.MaxFlows, b.cfg.XDP.KeepPins, b.cfg.XDP.WorstCost = 64, true, 64
	if err := b.start(t).Close(); err != nil {
		t.Fatal(err)
	}
	sent := backend.Pair(b.send(t, 1000, lab.Stream{Frames: [][]byte{udpTo(1063, 60)}})[0])
	old := b.cfg.Flows
	b.cfg.Flows = nil
	for i := range 64 { // one packet matches all of them
		b.cfg.Flows = append(b.cfg.Flows, flow.Flow{Name: fmt.Sprint("new", i), Match: match(t, fmt.Sprintf("udp dport %d-%d", 1+i, 60000-i))})
	}
	err := b.wire.Near.NS.Do(func() error {
		_, err := New(t.Context(), b.cfg, Options{})
		return err
	})
	if !errors.Is(err, dataplane.ErrCostly) || !strings.Contains(err.Error(), "because of the flows new0, ") {
		t.Fatalf("the start: %v", err)
	}
	b.cfg.Flows, b.cfg.XDP.KeepPins = old, false
	e := b.start(t)
	for _, entry := range e.writer.Entries() {
		if entry.Continuity.Discontinuities != 0 {
			t.Errorf("%+v", entry)
		}
	}
	await(t, reader(t, b.cfg), "old63", sent)
}

// A degraded start over full tables goes on without the flow for which there is no room, which comes first. The others, of
// which one has another name now, find their counters, also those that are placed after that flow is refused.
func TestFullTablesOfADegradedStartAreTakenUp(t *testing.T) {
	for _, word := range []flow.Backend{"", flow.XDP} { // flows that name a backend are placed apart
		t.Run("backend "+string(word), func(t *testing.T) {
			b := newBench(t, "native", flowsTo(t, "f", 0, 64)...)
			for i := range b.cfg.Flows[32:] {
				b.cfg.Flows[32+i].Backend = word
			}
			b.cfg.Start, b.cfg.XDP.MaxFlows, b.cfg.XDP.KeepPins = dataplane.StartDegraded, 64, true
			if err := b.start(t).Close(); err != nil {
				t.Fatal(err)
			}
			want := make(map[string]backend.Pair)
			for _, n := range []int{0, 31, 32, 63} {
				want[b.cfg.Flows[n].Name] = backend.Pair(b.send(t, 1000, lab.Stream{Frames: [][]byte{udpTo(uint16(1000+n), 60)}})[0])
			}
			want["renamed"] = want["f63"]
			delete(want, "f63")
			b.cfg.Flows[63].Name = "renamed"
			b.cfg.Flows = append(flowsTo(t, "new", 64, 1), b.cfg.Flows...)
			b.cfg.XDP.KeepPins = false
			e := b.start(t)
			for _, entry := range e.writer.Entries() {
				if entry.Continuity.Discontinuities != 0 || entry.Name == "new64" {
					t.Errorf("%+v", entry)
				}
			}
			for name, sent := range want {
				await(t, reader(t, b.cfg), name, sent)
			}
		})
	}
}

// A mask whose last rule went is still known to the programs that run; the
// next process takes them up, or replaces them, and counts on.
func TestAMaskWithoutRulesIsTakenUp(t *testing.T) {
	b := newBench(t, "native", flow.Flow{Name: "stays", Match: match(t, "udp dport 1000")}, flow.Flow{Name: "goes", Match: match(t, "vlan id 5 ipv6")})
	b.cfg.XDP.KeepPins = true
	e := b.start(t)
	if err := e.RemoveFlows(t.Context(), "goes"); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	sent := b.send(t, 1000, lab.Stream{Frames: [][]byte{udpTo(1000, 60)}})[0]
	b.cfg.Flows, b.cfg.XDP.KeepPins = b.cfg.Flows[:1], false
	b.start(t)
	await(t, reader(t, b.cfg), "stays", backend.Pair(sent))
}
