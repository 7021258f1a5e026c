package e2e

import (
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/times"
	"github.com/flowtally/flowtally/shm"
)

// A second Go process and the C example read the same values while the plugin counts. After kill -9
// of the plugin, without a restart, both keep working and report that the writer is gone.
func TestReadersOutliveTheWriter(t *testing.T) {
	needLab(t)
	need.Tool(t, "cc")
	names := []string{"dns", "web"}
	b := newBench(t, time.Hour, // never restarted
		flow.Flow{Name: names[0], Match: match(t, "ipv4 udp dport 53")},
		flow.Flow{Name: names[1], Match: match(t, "ipv6 tcp dport 443")})

	goReader := exec.Command("/proc/self/exe", names...)
	goReader.Env = append(os.Environ(), readerEnv+"="+b.info.Mirror)
	readers := []*onlooker{
		watch(t, "Go reader", goReader),
		watch(t, "C reader", exec.Command(cReader(t), append([]string{"-i", "0.05", b.info.Mirror}, names...)...)),
	}

	s, err := b.far.NewSender([]lab.Stream{
		{Name: "dns", Frames: [][]byte{frame.Sized(80, eth, frame.IPv4{Src: frame.Addr("192.0.2.1"), Dst: frame.Addr("192.0.2.2")}, frame.UDP{Src: 1, Dst: 53})}},
		{Name: "web", Frames: [][]byte{frame.Sized(300, eth, frame.IPv6{Src: frame.Addr("2001:db8::1"), Dst: frame.Addr("2001:db8::2")}, frame.TCP{Src: 1, Dst: 443})}, Weight: 3},
	}, lab.SenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	// same reports whether a reader shows the packets sent so far.
	same := func(counts map[string][2]uint64, _ string) bool {
		for i, sent := range s.Sent() {
			if counts[names[i]] != [2]uint64{sent.Packets, sent.Bytes} {
				return false
			}
		}
		return true
	}
	for range 3 { // while it runs
		if err := s.Run(t.Context(), 50_000); err != nil {
			t.Fatal(err)
		}
		for _, r := range readers {
			r.await(t, "the values that were sent", same)
			r.await(t, "a running writer", func(_ map[string][2]uint64, w string) bool { return w == "run" })
		}
	}
	b.killed = true
	if err := syscall.Kill(b.info.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, r := range readers {
		r.await(t, "word that the writer is gone, and the same values", func(counts map[string][2]uint64, w string) bool {
			return w == "gone" && same(counts, w)
		})
		r.mu.Lock()
		lines := r.lines
		r.mu.Unlock()
		r.await(t, "more lines", func(map[string][2]uint64, string) bool { return r.lines > lines+9 })
	}
}

// With frames of one size, every read of the mirror by every reader shows
// bytes == packets × size, under full traffic on two CPUs.
func TestPairsBelongTogether(t *testing.T) {
	needLab(t)
	need.CPUs(t, 2)
	const size = 123
	b := newBench(t, time.Hour, flow.Flow{Name: "one", Match: match(t, "ipv4 udp")}, flow.Flow{Name: "fast", Match: match(t, "ipv4 tcp"), Latency: true})
	ip := frame.IPv4{Src: frame.Addr("192.0.2.1"), Dst: frame.Addr("192.0.2.2")}
	streams := []lab.Stream{
		{Name: "one", Frames: [][]byte{frame.Sized(size, eth, ip, frame.UDP{Src: 1, Dst: 53})}},
		{Name: "fast", Frames: [][]byte{frame.Sized(size, eth, ip, frame.TCP{Src: 1, Dst: 53})}},
	}
	r, err := shm.OpenReader(b.info.Mirror)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()

	var sending, reading sync.WaitGroup
	var reads, changes, sent atomic.Uint64
	stop := make(chan struct{})
	for _, s := range streams {
		h, err := r.Lookup(s.Name)
		if err != nil {
			t.Fatal(err)
		}
		c, err := r.Counter(h)
		if err != nil {
			t.Fatal(err)
		}
		reading.Go(func() {
			var last shm.Value
			for n := uint64(0); ; n++ {
				if n%1024 == 0 {
					select {
					case <-stop:
						reads.Add(n)
						return
					default:
					}
				}
				v, err := c.Load()
				if err != nil || v.Bytes != v.Packets*size || v.Packets < last.Packets {
					t.Errorf("read %d of %s: %+v after %+v, %v; want %d bytes", n, s.Name, v, last, err, v.Packets*size)
					return
				}
				if v.Packets != last.Packets {
					changes.Add(1)
				}
				last = v
			}
		})
	}
	batch := times.Brief(uint64(1_500_000), 200_000)
	for cpu := range 2 {
		s, err := b.far.NewSender(streams, lab.SenderOptions{CPU: cpu + 1, Seed: uint64(cpu)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		sending.Go(func() {
			for rounds := 0; rounds == 0 || changes.Load() < 20 && rounds < 100 && !t.Failed(); rounds++ { // until enough was seen
				if err := s.Run(t.Context(), batch); err != nil {
					t.Error(err)
				}
				sent.Add(batch)
			}
		})
	}
	sending.Wait()
	close(stop)
	reading.Wait()
	if changes.Load() < 20 {
		t.Errorf("only %d changes were seen in %d reads", changes.Load(), reads.Load())
	}
	t.Logf("%d reads, %d changes, %d packets", reads.Load(), changes.Load(), sent.Load())
}
