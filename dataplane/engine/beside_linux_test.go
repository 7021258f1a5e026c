package engine

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/times"
)

// An instance counts behind a program on the XDP hook, says so while that program is there, and no longer when it has left.
// Every packet that it passes is counted.
func TestBesideAnotherProgramEachPassedPacketIsCounted(t *testing.T) {
	need.TCX(t)
	b := newBench(t, "auto", flow.Flow{Name: "a", Match: match(t, "udp dport 1001")}, flow.Flow{Name: "dropped", Match: match(t, "udp dport 1002"), Action: flow.Drop})
	occupy(t, b.wire.Near)
	e := b.start(t)
	c := awaitCondition(t, e, "xdp-beside", b.wire.Near.Name, true)
	if c.Severity != dataplane.Medium || !strings.Contains(c.Text, "foreign") {
		t.Errorf("condition %+v", c)
	}
	frames := []lab.Stream{{Frames: [][]byte{udpTo(1001, 60)}}, {Frames: [][]byte{udpTo(1002, 60)}}}
	var total [2]backend.Pair
	send := func() {
		t.Helper()
		for i, sent := range b.send(t, 2000, frames...) {
			total[i] = backend.Add(total[i], backend.Pair(sent))
		}
		await(t, reader(t, b.cfg), "a", total[0])
		await(t, reader(t, b.cfg), "dropped", total[1])
	}
	send()
	b.wire.Near.Do(t, lab.Step(t, c.Fix, "bpftool link detach id …"))
	awaitCondition(t, e, "xdp-beside", b.wire.Near.Name, false)
	send()
	occupy(t, b.wire.Near)
	awaitCondition(t, e, "xdp-beside", b.wire.Near.Name, true)
	send()
	placed, err := e.Placements(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := placed[0].Source.String(), "xdp:"+b.wire.Near.Name+"/tcx"; got != want {
		t.Errorf("counted by %s, want %s", got, want)
	}
}

// underTraffic calls f while packets flow, and returns when the last packet has arrived.
func underTraffic(t *testing.T, s *lab.Sender, f func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, 0) }()

	f()

	stop()
	if err := errors.Join(<-done, s.Settle(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// moving is an instance whose flow "a" moves between XDP and TCX under traffic.
type moving struct {
	*bench
	t     *testing.T
	e     *Engine
	s     *lab.Sender
	moves uint64 // so far
}

func newMoving(t *testing.T, b *bench, e *Engine) *moving {
	t.Helper()
	s, err := b.wire.Far.NewSender([]lab.Stream{{Frames: [][]byte{udpTo(1001, 60)}}}, lab.SenderOptions{Rate: 20_000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &moving{bench: b, t: t, e: e, s: s}
}

// set sets the mode of the interface.
func (m *moving) set(mode dataplane.Mode) {
	m.t.Helper()

	file := m.cfg
	file.Flows = nil
	file.Interfaces = []dataplane.Interface{{Name: m.wire.Near.Name, Mode: mode}}
	if _, err := m.e.SetFlows(m.t.Context(), nil, dataplane.SetOptions{KeepOthers: true, Config: &file}); err != nil {
		m.t.Fatal(err)
	}
}

// counted returns the packets and bytes of the flow in the kernel.
func (m *moving) counted() backend.Pair {
	m.t.Helper()
	m.e.ctl.Lock()
	defer m.e.ctl.Unlock()

	c := m.e.flows["a"]
	p, err := backend.ReadOne(c.backend, c.id)
	if err != nil {
		m.t.Fatal(err)
	}
	return p
}

// awaitMore waits until the flow has counted more packets.
func (m *moving) awaitMore() {
	m.t.Helper()
	was := m.counted().Packets
	lab.Eventually(m.t, "packets before and after a move", func() bool { return m.counted().Packets > was+50 })
}

// move calls f under traffic, which moves the interface. The move is one discontinuity. Afterwards each packet is counted
// once, without another discontinuity.
func (m *moving) move(mode dataplane.Mode, f func()) {
	m.t.Helper()
	underTraffic(m.t, m.s, func() {
		m.awaitMore()
		f()
		awaitMode(m.t, m.e, m.e.backends[0].(*xdp.Backend), mode)
		m.awaitMore()
	})

	m.moves++
	lab.Eventually(m.t, "the discontinuity", func() bool { return discontinuitiesOf(m.e, "a") >= m.moves })
	m.exact(string(mode))
}

// exact sends packets, and checks that each is counted once, without a discontinuity since the last move.
func (m *moving) exact(when string) {
	m.t.Helper()
	was := m.counted()
	sent := m.send(m.t, 1000, lab.Stream{Frames: [][]byte{udpTo(1001, 60)}})[0]
	await(m.t, reader(m.t, m.cfg), "a", backend.Add(was, backend.Pair(sent)))

	for _, entry := range m.e.writer.Entries() {
		if n := uint64(entry.Continuity.Discontinuities); n != m.moves {
			m.t.Errorf("%s: %d discontinuities of %s after %d moves", when, n, entry.Name, m.moves)
		}
	}
}

// The mode of an interface changes between native and tcx under traffic, ten times each way. Another program takes the
// hook in between. The mirror has one discontinuity for each move when the call returns. Between the moves each packet is
// counted once.
func TestEachModeChangeIsOneDiscontinuity(t *testing.T) {
	need.TCX(t)
	b := newBench(t, "native", flow.Flow{Name: "a", Match: match(t, "udp dport 1001")})
	m := newMoving(t, b, b.start(t))
	set := func(mode dataplane.Mode) {
		m.move(mode, func() {
			m.set(mode)
			if n := discontinuitiesOf(m.e, "a"); n != m.moves+1 {
				t.Errorf("%d discontinuities when the call has returned, want %d", n, m.moves+1)
			}
		})
	}
	for range times.Brief(10, 2) {
		set(dataplane.ModeTCX)
		if err := occupy(t, b.wire.Near).Close(); err != nil {
			t.Fatal(err)
		}
		m.exact("another program has come and gone")
		set(dataplane.ModeNative)
	}
	t.Logf("%d moves, each one discontinuity", m.moves)
}
