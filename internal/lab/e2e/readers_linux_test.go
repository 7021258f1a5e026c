package e2e

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/plugin"
)

// A second Go process and the C example read the same values while the plugin
// counts. After kill -9 of the plugin, which nobody restarts, both keep working
// and say that the writer is gone.
func TestReadersOutliveTheWriter(t *testing.T) {
	needLab(t)
	need.Tool(t, "cc")
	near, err := lab.CurrentNetns()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := lab.NewNetns("")
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	pair, err := lab.NewPair(near, far, lab.Unique("e2e"), lab.Unique("far"), lab.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer pair.Close()

	names := []string{"dns", "web"}
	cfg := dataplane.Config{
		Instance: lab.Unique("e2e-"), Backend: "xdp",
		Interfaces: []dataplane.Interface{{Name: pair.A.Name, Mode: "native"}},
	}
	for i, text := range []string{"ipv4 udp dport 53", "ipv6 tcp dport 443"} {
		m, err := flow.ParseMatch(text)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Flows = append(cfg.Flows, flow.Flow{Name: names[i], Match: m})
	}
	c, err := plugin.Launch(t.Context(), plugin.Options{
		Path: binary(t, "flowtally-plugin"), Config: cfg, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		RestartMin: time.Hour, RestartMax: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	info, err := c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		c.Close() // of a plugin that was killed
		os.RemoveAll(filepath.Join("/sys/fs/bpf/flowtally", cfg.Instance))
		for _, suffix := range []string{"", ".lock", ".wait"} {
			os.Remove(info.Mirror + suffix)
		}
	}()

	goReader := exec.Command("/proc/self/exe", names...)
	goReader.Env = append(os.Environ(), readerEnv+"="+info.Mirror)
	readers := []*onlooker{
		watch(t, "Go reader", goReader),
		watch(t, "C reader", exec.Command(cReader(t), append([]string{"-i", "0.05", info.Mirror}, names...)...)),
	}

	eth := frame.Eth{Dst: [6]byte{2, 0, 0, 0, 0, 1}, Src: [6]byte{2, 0, 0, 0, 0, 2}}
	s, err := pair.B.NewSender([]lab.Stream{
		{Name: "dns", Frames: [][]byte{frame.Sized(80, eth, frame.IPv4{Src: frame.Addr("192.0.2.1"), Dst: frame.Addr("192.0.2.2")}, frame.UDP{Src: 1, Dst: 53})}},
		{Name: "web", Frames: [][]byte{frame.Sized(300, eth, frame.IPv6{Src: frame.Addr("2001:db8::1"), Dst: frame.Addr("2001:db8::2")}, frame.TCP{Src: 1, Dst: 443})}, Weight: 3},
	}, lab.SenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	// same says that a reader shows what was sent so far.
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
	if err := syscall.Kill(info.PID, syscall.SIGKILL); err != nil {
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
