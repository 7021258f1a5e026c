package rdma

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

// slowBulk is a bulk whose firmware takes some time for a read.
type slowBulk struct {
	*fakeBulk
	takes time.Duration
}

func (b slowBulk) query(dst []backend.Pair) error {
	time.Sleep(b.takes)
	return b.fakeBulk.query(dst)
}

// With the most pools that flows can have, and a firmware that takes 100 µs per read, samples must be as old as the budget implies
// and no older. The clock is a fake one, so a busy machine makes no sample older.
func TestValuesAreAsOldAsTheBudgetImplies(t *testing.T) {
	for _, c := range []struct {
		name             string
		perSecond, pools int
	}{{"verbs", 4000, 4096}, {"devx", 200, 4096 / bulkCounters}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				now := func() int64 { return int64(time.Since(began)) + 1 }
				n := &fakeNIC{by: withDevX, bulk: 1}
				r := newReader(now, newPacer(c.perSecond), time.Millisecond, slog.New(slog.DiscardHandler), func(error) {}, func() {})
				samples := make([]slotSample, c.pools)
				for i := range samples {
					b, _ := n.newBulk()
					h := newPool(slowBulk{b.(*fakeBulk), 100 * time.Microsecond})
					h.take(&samples[i])
					r.add(h)
				}
				ctx, enough := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					r.run(ctx)
				}()
				defer func() { enough(); <-ended }()
				_, pass := Budget{c.perSecond, time.Millisecond}.ReadEvery(c.pools, 1)
				time.Sleep(pass + pass/4)
				var oldest int64
				for end := time.Now().Add(5 * pass); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
					for i := range samples {
						_, at := samples[i].Load()
						oldest = max(oldest, now()-at)
					}
				}
				n.mu.Lock()
				commands := n.commands
				n.mu.Unlock()
				took := time.Since(began).Seconds()
				t.Logf("%d commands in %.2f s; a pass is %v by the budget, the oldest value was %v old", commands, took, pass, time.Duration(oldest))
				if limit := (took + burst.Seconds()) * float64(c.perSecond); float64(commands) > limit+1 {
					t.Errorf("%d commands, the budget has %.0f", commands, limit)
				}
				if oldest > int64(pass+pass/4) {
					t.Errorf("a value was %v old", time.Duration(oldest))
				}
			})
		})
	}
}
