package engine

import (
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/shm"
)

// awaitPeriod waits until the header of the mirror tells that period. It calls meanwhile again and again.
func awaitPeriod(t *testing.T, r *shm.Reader, period time.Duration, meanwhile func()) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		s := r.Status()
		if s.PollPeriod == period && s.Alive {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the period is not %v: %+v", period, s)
		}
		meanwhile()
	}
}

// An instance ends while it is idle. Its mirror tells the idle period; the packets that pass before the next process, which
// begins at its period, are counted. The test waits for the 10 s after which an instance is idle.
func TestARestartWhileIdleMissesNoPacket(t *testing.T) {
	if testing.Short() {
		t.Skip("an instance is idle after 10 s")
	}
	b := newBench(t, "native", flow.Flow{Name: "a", Match: match(t, "udp dport 1001")})
	b.cfg.XDP.KeepPins = true
	const fast, idle = 2 * time.Millisecond, 70 * time.Millisecond
	b.cfg.Poll.Period, b.cfg.Poll.IdlePeriod = fast, idle
	var total backend.Pair
	send := func() {
		t.Helper()
		sent := b.send(t, 100, lab.Stream{Frames: [][]byte{udpTo(1001, 60), udpTo(1001, 1514)}})
		total = backend.Add(total, backend.Pair(sent[0]))
	}
	e := b.start(t)
	r := reader(t, b.cfg)
	send()
	held := func(period time.Duration, meanwhile func()) {
		t.Helper()
		lab.Eventually(t, "the period of the queries", func() bool {
			meanwhile()
			return e.backends[0].(*xdp.Backend).Inspect().HeldPeriod == period
		})
	}
	awaitPeriod(t, r, fast, send)
	held(20*time.Millisecond, send)
	awaitPeriod(t, r, idle, func() {})
	held(250*time.Millisecond, func() {})
	await(t, r, "a", total)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if s := r.Status(); s.Alive || s.PollPeriod != idle {
		t.Errorf("after the end: %+v", s)
	}
	send() // the programs count on
	b.cfg.XDP.KeepPins = false
	e = b.start(t)
	awaitPeriod(t, r, fast, send)
	await(t, r, "a", total)
	for _, entry := range e.writer.Entries() {
		if n := entry.Continuity.Discontinuities; n != 0 {
			t.Errorf("%s: %d discontinuities", entry.Name, n)
		}
	}
}
