package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/lab/times"
	"github.com/flowtally/flowtally/internal/oracle"
	"github.com/flowtally/flowtally/shm"
)

// drawOverlapping draws flows that overlap and often have one priority.
func drawOverlapping(t testing.TB, r *rand.Rand, near string, live []flow.Flow) (flows []flow.Flow, opts dataplane.SetOptions) {
	texts := []string{"udp dport 2000", "udp dport 2001", "udp dport 2000-2001", "udp dport 2001-2002", "udp", "ipv4", "any",
		"ipv4 src 198.51.100.0/24", "ipv4 src 198.51.0.0/16 udp dport 2002", "udp dport 2000-2003"}
	opts = dataplane.SetOptions{KeepOthers: r.IntN(3) == 0, Renames: make(map[string]string)}
	taken := make(map[string]bool)
	for _, f := range live {
		taken[f.Name] = true
	}
	change := func(f *flow.Flow) {
		switch r.IntN(8) {
		case 0:
			f.Priority = uint16(r.IntN(2))
		case 1:
			f.Action = flow.Action(r.IntN(2))
		case 2:
			f.Latency = !f.Latency
		case 3:
			f.Labels = map[string]string{"n": fmt.Sprint(r.IntN(3))}
		}
	}
	for _, f := range live {
		f = f.Clone()
		change(&f)
		switch r.IntN(8) {
		case 0:
			continue
		case 1:
			f.Match = match(t, texts[r.IntN(len(texts))])
		case 2:
			f.Interface = []string{"", near}[r.IntN(2)]
		case 3:
			if to := fmt.Sprintf("r%d", r.IntN(20)); !taken[to] {
				opts.Renames[f.Name], taken[to] = to, true
				f.Name = to
			}
		}
		flows = append(flows, f)
	}
	for range r.IntN(3) {
		name := fmt.Sprintf("r%d", r.IntN(20))
		if !taken[name] && len(flows) < 10 {
			taken[name] = true
			f := flow.Flow{Name: name, Match: match(t, texts[r.IntN(len(texts))]), Priority: uint16(r.IntN(2)), Action: flow.Action(r.IntN(2))}
			change(&f)
			flows = append(flows, f)
		}
	}
	r.Shuffle(len(flows), func(i, j int) { flows[i], flows[j] = flows[j], flows[i] })
	return flows, opts
}

// TestSetFlowsCountsEachPacketInOneFlow compares 300 changes of overlapping flows, and restarts between them, with a
// linear search: each packet that is sent between two changes is in the total of one flow, and passes unless that flow
// drops it.
func TestSetFlowsCountsEachPacketInOneFlow(t *testing.T) {
	t.Parallel()
	b := newBench(t, "native")
	b.cfg.XDP.KeepPins = true
	e, r := b.start(t), seed.Rand(t)
	defer func() { b.cfg.XDP.KeepPins = false }()
	var streams []lab.Stream
	for _, port := range []uint16{2000, 2001, 2002, 2003} {
		streams = append(streams, lab.Stream{Frames: [][]byte{udpTo(port, 60)}})
	}
	snd, err := b.wire.Far.NewSender(streams, lab.SenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer snd.Close()
	var m setModel
	m.truth = make(map[string]backend.Pair)
	rounds, restarts, anew := times.Brief(300, 60), 0, 0
	before := snd.Sent()
	for round := range rounds {
		flows, opts := drawOverlapping(t, r, b.wire.Near.Name, m.live)
		dry := opts
		dry.DryRun = true
		plan := set(t, e, flows, dry)
		d := set(t, e, flows, opts)
		if d.String() != plan.String() || d.Unchanged != plan.Unchanged {
			t.Fatalf("difference\n%sand in the dry run\n%s", d, plan)
		}
		for _, c := range d.Changed {
			if c.Anew {
				anew++
			}
		}
		m.set(flows, d, opts.KeepOthers)
		if again := set(t, e, m.live, dataplane.SetOptions{}); !again.Empty() {
			t.Fatalf("the set that was just made differs:\n%s", again)
		}
		if round%20 == 19 {
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			b.cfg.Flows = m.live
			e = b.start(t)
			restarts++
		}
		if err := snd.Run(t.Context(), 20); err != nil {
			t.Fatal(err)
		}
		if err := snd.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		matcher, now := oracle.New(m.live), snd.Sent()
		for i, port := range []uint16{2000, 2001, 2002, 2003} {
			p := oracle.Packet{Frame: udpTo(port, 60), Interface: b.wire.Near.Name}
			if at, ok := matcher.Match(p); ok {
				name := m.live[at].Name
				m.truth[name] = backend.Add(m.truth[name], backend.Sub(backend.Pair(now[i]), backend.Pair(before[i])))
			}
		}
		before = now
		rd, err := shm.OpenReader(b.cfg.Mirror.Path)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range m.truth {
			await(t, rd, name, want)
		}
		entries, err := rd.Entries()
		if err != nil || len(entries) != len(m.truth) {
			t.Fatalf("%d entries, %v, want %d", len(entries), err, len(m.truth))
		}
		for _, en := range entries {
			i := slices.IndexFunc(m.live, func(f flow.Flow) bool { return f.Name == en.Name })
			if i < 0 || en.Text != m.live[i].Identity() || en.Latency != m.live[i].Latency || en.Continuity.Discontinuities != 0 {
				t.Fatalf("entry %+v of flow %v", en, i)
			}
		}
		rd.Close()
	}
	if anew*6 < rounds || restarts == 0 {
		if !testing.Short() {
			t.Error("that shows nothing")
		}
	}
	t.Logf("%d calls, %d flows counted anew, %d restarts", rounds, anew, restarts)
}
