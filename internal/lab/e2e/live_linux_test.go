package e2e

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/internal/lab/times"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/shm/shmtest"
)

// kill -9 of the plugin under traffic, again and again, while a reader uses the live view: each read is exact or refused. It
// never falls, is never behind the mirror, and has the bytes of its own flow's packets. A view that was opened before all kills
// is exact at the end.
func TestLiveViewIsExactOrRefusedWhileThePluginIsKilled(t *testing.T) {
	needLab(t)
	const size = 60
	b := newBenchOf(t, 50*time.Millisecond, func(string) (dataplane.Config, []string) {
		return dataplane.Config{
			Backend: "xdp", Mirror: dataplane.MirrorConfig{LiveMode: 0o600},
			Flows: []flow.Flow{{Name: "a", Match: match(t, "udp dport 1001")}, {Name: "b", Match: match(t, "udp dport 1002")}},
		}, nil
	})
	r := shmtest.MustOpen(t, b.info.Mirror)
	h := shmtest.MustLookup(t, r, "a")
	c, err := r.Counter(h)
	if err != nil {
		t.Fatal(err)
	}
	first, err := r.Live(h)
	if err != nil {
		t.Fatal(err)
	}
	ip := frame.IPv4{Src: frame.Addr("192.0.2.1"), Dst: frame.Addr("192.0.2.2")}
	s, err := b.far.NewSender([]lab.Stream{
		{Frames: [][]byte{frame.Sized(size, eth, ip, frame.UDP{Src: 1, Dst: 1001})}},
		{Frames: [][]byte{frame.Sized(77, eth, ip, frame.UDP{Src: 1, Dst: 1002})}},
	}, lab.SenderOptions{Rate: 20_000})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, enough := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer enough()
	running.Go(func() {
		if err := s.Run(ctx, 0); err != nil {
			t.Error(err)
		}
	})
	var read, refused atomic.Uint64
	running.Go(func() {
		view, last := first, uint64(0)
		for ; ctx.Err() == nil; time.Sleep(20 * time.Microsecond) { // the other goroutines need a CPU too
			v, err := c.Load()
			if err == nil {
				last = max(last, v.Packets)
			}
			packets, bytes, err := view.Load()
			switch {
			case err == nil && packets >= last && bytes == size*packets:
				last = packets
				read.Add(1)
			case errors.Is(err, shm.ErrNoLive), errors.Is(err, shm.ErrBusy):
				refused.Add(1)
				if again, err := r.Live(h); err == nil {
					view = again
				}
			default:
				t.Errorf("%d packets, %d bytes, %v; %d were seen before", packets, bytes, err, last)
				return
			}
		}
	})
	pid := 0
	for range times.Brief(5, 2) {
		var ok bool
		if pid, ok = nextPID(ctx, b.client, pid); !ok {
			t.Fatal("the plugin is not there")
		}
		was := read.Load()
		lab.Eventually(t, "reads of the live view", func() bool { return read.Load() > was+100 || t.Failed() })
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := nextPID(ctx, b.client, pid); !ok {
		t.Fatal("the plugin is not back")
	}
	was := read.Load()
	lab.Eventually(t, "reads after the last kill", func() bool { return read.Load() > was+100 || t.Failed() })
	enough()
	running.Wait()
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	sent := s.Sent()[0]
	if packets, bytes, err := first.Load(); packets != sent.Packets || bytes != sent.Bytes || err != nil {
		t.Errorf("the first view has %d packets, %d bytes, %v, and %+v were sent", packets, bytes, err, sent)
	}
	t.Logf("%d reads, %d refused, beside %d packets", read.Load(), refused.Load(), sent.Packets)
}
