package e2e

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/plugin"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/shm/shmtest"
)

// kill -9 of the plugin while it is idle, so that its mirror tells the idle period. A reader finds the writer dead and the
// old value with its age. The packets that pass meanwhile are in the total of the next process, without a discontinuity.
// The test waits for the 10 s after which an instance is idle.
func TestAKillWhileIdleLosesNoPacket(t *testing.T) {
	needLab(t)
	if testing.Short() {
		t.Skip("an instance is idle after 10 s")
	}
	const fast, idle = 2 * time.Millisecond, 500 * time.Millisecond
	b := newBenchOf(t, time.Hour, func(string) (dataplane.Config, []string) {
		return dataplane.Config{
			Backend: "xdp", Flows: []flow.Flow{{Name: "a", Match: match(t, "udp dport 1001")}},
			Poll: dataplane.PollConfig{Period: fast, IdlePeriod: idle}, XDP: dataplane.XDPConfig{KeepPins: true},
		}, nil
	})
	r := shmtest.MustOpen(t, b.info.Mirror)
	h := shmtest.MustLookup(t, r, "a")
	c, err := r.Counter(h)
	if err != nil {
		t.Fatal(err)
	}
	ip, udp := frame.IPv4{Src: frame.Addr("192.0.2.1"), Dst: frame.Addr("192.0.2.2")}, frame.UDP{Src: 1, Dst: 1001}
	s, err := b.far.NewSender([]lab.Stream{{Frames: [][]byte{frame.Sized(60, eth, ip, udp), frame.Sized(1514, eth, ip, udp)}}}, lab.SenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	send := func() {
		t.Helper()
		if err := s.Run(t.Context(), 1000); err != nil {
			t.Fatal(err)
		}
		if err := s.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	load := func() (v shm.Value) {
		t.Helper()
		lab.Eventually(t, "a read", func() bool {
			if v, err = c.Load(); err != nil && !errors.Is(err, shm.ErrBusy) {
				t.Fatal(err)
			}
			return err == nil
		})
		return v
	}
	exact := func(v shm.Value) bool { return v.Packets == s.Sent()[0].Packets && v.Bytes == s.Sent()[0].Bytes }
	send()
	lab.Eventually(t, "the packets, and an idle writer", func() bool { return exact(load()) && r.Status().PollPeriod == idle })
	cycle := r.Status().Cycle
	lab.Eventually(t, "the end of a cycle", func() bool { return r.Status().Cycle != cycle }) // no value is half written
	if err := syscall.Kill(b.info.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := shm.Now()
	lab.Eventually(t, "a dead writer", func() bool { return !r.Status().Alive })
	was, status := load(), r.Status()
	if since := time.Duration(shm.Now() - was.SampledAt); !exact(was) || was.SampledAt > killed || since < status.CycleAge || status.PollPeriod != idle {
		t.Errorf("the dead writer's value is %+v, %v old, with status %+v", was, since, status)
	}
	send() // the programs count on
	if v := load(); v != was {
		t.Errorf("the dead writer's value became %+v, was %+v", v, was)
	}
	b.killed = true
	b.client.Close()
	b.options.Config.XDP.KeepPins = false
	next, err := plugin.Launch(t.Context(), b.options)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	lab.Eventually(t, "the packets of all the time", func() bool { return exact(load()) })
	if v := load(); v.SampledAt <= killed || !r.Status().Alive {
		t.Errorf("the value is %+v, the status %+v; the writer was killed at %d", v, r.Status(), killed)
	}
	send()
	lab.Eventually(t, "the last packets", func() bool { return exact(load()) })
	entry, err := r.Entry(h)
	if err != nil || entry.Continuity.Discontinuities != 0 {
		t.Errorf("%d discontinuities, %v", entry.Continuity.Discontinuities, err)
	}
}
