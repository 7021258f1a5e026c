package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is the longest wait for a state, on a machine that other processes use too.
const patience = 2 * time.Minute

// TestMain makes the test binary the collector too.
func TestMain(m *testing.M) {
	if os.Getenv("FLOWTALLY_OTEL") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// received is the last value of each counter and metric, and the starts of its total.
type received struct {
	mu     sync.Mutex
	last   map[string]point
	starts map[string]map[int64]bool
	pushed int
}

// collector starts the receiver, and returns its addresses.
func collector(t *testing.T, r *received, grpc, http string) (stop func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], grpc, http)
	cmd.Env = append(os.Environ(), "FLOWTALLY_OTEL=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s := bufio.NewScanner(out); s.Scan(); {
			var p point
			if err := json.Unmarshal(s.Bytes(), &p); err != nil {
				t.Error(err)
				return
			}
			r.add(p)
		}
	}()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cmd.Process.Signal(syscall.SIGTERM)
			<-done
			cmd.Wait()
		})
	}
	t.Cleanup(stop)
	return stop
}

func (r *received) add(p point) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := fmt.Sprintf("%v %s", p.Attributes["counter"], p.Metric)
	r.last[id] = p
	if r.starts[id] == nil {
		r.starts[id] = make(map[int64]bool)
	}
	r.starts[id][p.Start] = true
	r.pushed++
}

func (r *received) value(counter, metric string) (point, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.last[counter+" "+metric]
	return p, ok
}

// free returns a port of the loopback interface that no process listens on.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// flowtally returns the path of the program, which it builds unless FLOWTALLY_BIN has it.
func flowtally(t *testing.T) string {
	t.Helper()
	if bin := os.Getenv("FLOWTALLY_BIN"); bin != "" {
		return filepath.Join(bin, "flowtally")
	}
	path := filepath.Join(t.TempDir(), "flowtally")
	if out, err := exec.Command("go", "build", "-C", "../../..", "-o", path, "./cmd/flowtally").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// reading is the JSON of flowtally get.
type reading struct {
	Writer   struct{ State string }
	Counters []struct {
		Name            string
		Packets, Bytes  *int64
		Discontinuities int64
	}
}

// TestReceivedEqualsGet: a collector receives the values that flowtally get prints, over gRPC and over HTTP, as
// cumulative monotonic sums whose start stays the same over a restart of the writer. A collector that begins late gets
// the whole totals.
func TestReceivedEqualsGet(t *testing.T) {
	program := flowtally(t)
	dir, err := os.MkdirTemp("/dev/shm", "flowtally-otel-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	mirror := filepath.Join(dir, "otel.mirror")
	run := func() (stop func()) {
		return begin(t, program, "run", "--backend", "sim", "--embedded", "--flow", "web=tcp dport 443", "--flow", "dns=udp", "--socket", "-", "--mirror", mirror)
	}
	stopRun := run()
	byGRPC, byHTTP := newReceived(), newReceived()
	grpc1, http1, grpc2, http2 := free(t), free(t), free(t), free(t)
	begin(t, program, "export", "--mirror", mirror, "--listen", "-", "--otlp", "grpc://"+grpc1, "--otlp-period", "100ms")
	begin(t, program, "export", "--mirror", mirror, "--listen", "-", "--otlp", "http://"+http2, "--otlp-period", "100ms")
	collector(t, byGRPC, grpc1, http1)
	stopLate := collector(t, byHTTP, grpc2, http2)
	both := func(what string, ok func(*received) bool) {
		t.Helper()
		for _, r := range []*received{byGRPC, byHTTP} {
			eventually(t, what, func() bool { return ok(r) })
		}
	}
	counted := func(r *received) bool { p, ok := r.value("web", "flowtally.packets"); return ok && p.Value > 0 }
	both("the first counts", counted)
	stopLate() // the collector goes, and another one comes
	stopRun()
	stopRun = run()
	collector(t, byHTTP, grpc2, http2)
	before, _ := byGRPC.value("web", "flowtally.packets")
	both("more counts after the restarts", func(r *received) bool {
		p, ok := r.value("web", "flowtally.packets")
		return ok && p.Value > before.Value+1000
	})
	stopRun()
	want := get(t, program, mirror)
	if len(want.Counters) != 2 || want.Writer.State != "halt" {
		t.Fatalf("get returns %+v", want)
	}
	for _, c := range want.Counters {
		for metric, v := range map[string]int64{"flowtally.packets": *c.Packets, "flowtally.bytes": *c.Bytes, "flowtally.discontinuities": c.Discontinuities} {
			both(fmt.Sprintf("%s of %s = %d", metric, c.Name, v), func(r *received) bool {
				p, ok := r.value(c.Name, metric)
				return ok && p.Value == v
			})
			for _, r := range []*received{byGRPC, byHTTP} {
				p, _ := r.value(c.Name, metric)
				if !p.Monotonic || !p.Cumulative || p.Start <= 0 || p.Start > p.Time || p.Attributes["direction"] != "ingress" || p.Resource["service.name"] != "flowtally" {
					t.Errorf("%s: %+v", metric, p)
				}
				r.mu.Lock()
				if n := len(r.starts[c.Name+" "+metric]); n != 1 {
					t.Errorf("%s of %s has %d start times over one total", metric, c.Name, n)
				}
				r.mu.Unlock()
			}
		}
		t.Logf("%s: get and both collectors have %d packets, %d bytes, %d discontinuities", c.Name, *c.Packets, *c.Bytes, c.Discontinuities)
	}
	t.Logf("%d data points by gRPC, %d by HTTP", byGRPC.pushed, byHTTP.pushed)
}

func newReceived() *received {
	return &received{last: make(map[string]point), starts: make(map[string]map[int64]bool)}
}

// begin starts the program; the returned function, and the end of the test, ends it by SIGTERM.
func begin(t *testing.T, program string, args ...string) (stop func()) {
	t.Helper()
	cmd := exec.Command(program, args...)
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cmd.Process.Signal(syscall.SIGTERM)
			if err := cmd.Wait(); err != nil || t.Failed() {
				t.Errorf("%v: %v\n%s", args, err, log.String())
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

func get(t *testing.T, program, mirror string) (r reading) {
	t.Helper()
	out, err := exec.Command(program, "get", "--mirror", mirror, "-o", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not come true", what)
		}
	}
}
