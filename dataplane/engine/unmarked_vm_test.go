//go:build vm && linux

package engine

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
)

// The driver of a tap gives packets no metadata before Linux 6.15, so that a move between XDP and TCX under traffic loses some. The
// total declares that by a discontinuity. No packet is counted twice.
func TestMoveWithoutMetadata(t *testing.T) {
	b := newBench(t, "native", flow.Flow{Name: "a", Match: match(t, "udp dport 1001")})
	tap, err := lab.NewTun(b.wire.Near.NS, lab.Unique("tap"), lab.TunOptions{Ethernet: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tap.Close() })
	b.cfg.Interfaces = []dataplane.Interface{{Name: tap.Name, Mode: dataplane.ModeNative}}
	e := b.start(t)
	x := e.backends[0].(*xdp.Backend)
	discontinuities := func() uint64 { return uint64(e.writer.Entries()[0].Continuity.Discontinuities) }
	var written atomic.Uint64
	var ended atomic.Bool
	var writing sync.WaitGroup
	writing.Go(func() {
		for frame := udpTo(1001, 60); !ended.Load(); time.Sleep(100 * time.Microsecond) {
			if _, err := tap.File().Write(frame); err != nil {
				t.Error(err)
				return
			}
			written.Add(1)
		}
	})
	moves := 0
	for _, mode := range []dataplane.Mode{dataplane.ModeTCX, dataplane.ModeNative, dataplane.ModeTCX, dataplane.ModeNative} {
		was := written.Load()
		lab.Eventually(t, "packets between two moves", func() bool { return written.Load() > was+100 })
		file := b.cfg
		file.Flows, file.Interfaces = nil, []dataplane.Interface{{Name: tap.Name, Mode: mode}}
		if _, err := e.SetFlows(t.Context(), nil, dataplane.SetOptions{KeepOthers: true, Config: &file}); err != nil {
			t.Fatal(err)
		}
		awaitMode(t, e, x, mode)
		if moves++; discontinuities() > 0 && moves > 1 {
			break
		}
	}
	ended.Store(true)
	writing.Wait()
	e.ctl.Lock()
	got, err := backend.ReadOne(x, e.flows["a"].id)
	e.ctl.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	n := discontinuities()
	t.Logf("%d packets, %d counted, %d discontinuities over %d moves", written.Load(), got.Packets, n, moves)
	if n == 0 || n > uint64(moves) || got.Packets > written.Load() || got.Bytes != 60*got.Packets {
		t.Errorf("counted %+v of %d packets with %d discontinuities over %d moves", got, written.Load(), n, moves)
	}
	was := written.Load() - got.Packets // lost in the moves, and no others
	for range 100 {
		if _, err := tap.File().Write(udpTo(1001, 60)); err != nil {
			t.Fatal(err)
		}
	}
	await(t, reader(t, b.cfg), "a", backend.Pair{Packets: written.Load() + 100 - was, Bytes: 60 * (written.Load() + 100 - was)})
}
