package xdp

import (
	"context"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab"
)

// Both CPUs count packets of 40 flows. A reader reads a counter only if its mark has changed. After the last packet, one more poll
// must have every packet. The second round uses the program for CPUs that do not store in order.
func TestMarksLoseNoUpdate(t *testing.T) {
	for _, order := range []struct {
		name  string
		keeps bool
	}{{"in order", true}, {"in any order", false}} {
		t.Run(order.name, func(t *testing.T) {
			const flows, packets = 40, 100_000
			w := testWire(t)
			dp := openTest(t, Options{MaxRules: 1024})
			dp.loader.inOrder = order.keeps
			ids := floodRules(t, dp, flows)
			for i, id := range ids {
				if id != uint32(i) {
					t.Fatalf("flow %d has counter %d", i, id)
				}
			}
			attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
			var senders []*lab.Sender
			done := make(chan error, 2)
			for cpu := range 2 {
				s := flood(t, w.Far, flows, 100, lab.SenderOptions{CPU: cpu + 1})
				senders = append(senders, s)
				go func() { done <- s.Run(context.Background(), packets) }()
			}
			p := markPoller{dp: dp, seen: make([]uint32, (flows+Marked-1)/Marked), now: make([]uint32, (flows+Marked-1)/Marked), rows: make([]Row, flows)}
			for left := len(senders); left > 0; {
				p.poll(t)
				select {
				case err := <-done:
					if err != nil {
						t.Fatal(err)
					}
					left--
				default:
				}
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			sent := make([]Pair, flows)
			for _, s := range senders {
				if err := s.Settle(ctx); err != nil {
					t.Fatal(err)
				}
				for i, x := range s.Sent() {
					sent[i].Packets += x.Packets
					sent[i].Bytes += x.Bytes
				}
			}
			p.poll(t)
			for i, r := range p.rows {
				if (Pair{r.Packets, r.Bytes}) != sent[i] {
					t.Errorf("flow %d: the poller has %d packets and %d bytes, sent were %+v", i, r.Packets, r.Bytes, sent[i])
				}
			}
			read, skipped := p.read, p.skipped
			p.poll(t)
			if p.read != read || p.skipped != skipped+uint64(len(p.now)) {
				t.Errorf("a poll without packets read %d of %d spans", p.read-read, len(p.now))
			}
			t.Logf("%d spans were read, %d skipped", p.read, p.skipped)
		})
	}
}

// markPoller reads counters as a poller does that goes by marks.
type markPoller struct {
	dp            *Datapath
	seen, now     []uint32
	rows          []Row
	read, skipped uint64
}

func (p *markPoller) poll(t *testing.T) {
	t.Helper()
	if err := p.dp.Marks(p.now); err != nil {
		t.Fatal(err)
	}
	for i, m := range p.now {
		if m == p.seen[i] {
			p.skipped++
			continue
		}
		from, to := i*Marked, min((i+1)*Marked, len(p.rows))
		if err := ReadRows(p.dp, uint32(from), p.rows[from:to], 1); err != nil {
			t.Fatal(err)
		}
		p.seen[i] = m
		p.read++
	}
}
