//go:build vm

package guest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/lab/demo"
)

// instance of the test, and what its configuration says. A message is short: the machine's
// CPU is emulated, and rxe computes a checksum over every byte.
const (
	qpInstance = "qp"
	qpReceives = 128
	qpConfig   = `instance: qp
poll: {period: 5ms}
queue_pairs:
  - name: near
    device: rxe0
    gid_index: %[1]d
    message_size: 256
    connect: far
    counters:
      - {name: near-sent, operations: [send]}
      - {name: near-written, operations: [rdma_write]}
      - {name: near-read, operations: [rdma_read]}
  - name: far
    device: rxe0
    gid_index: %[1]d
    message_size: 256
    receives: %[2]d
    counters:
      - {name: far-received, operations: [recv]}
`
)

// TestQueuePairs: 100,000 operations of a reliable connection over a real kernel RDMA stack,
// posted by `flowtally queue-pairs post`, are counted exactly, from ibv_poll_cq, and shown by
// `flowtally get`. So are those that end in error, and what follows when it is mended.
func TestQueuePairs(t *testing.T) {
	newPair(t, "v0")
	addRXE(t, "rxe0", "v0")
	startInstance(t, fmt.Sprintf(qpConfig, gidIndex(t, "rxe0", "10.77.0.1"), qpReceives))
	checkSource(t)

	start := time.Now()
	const sends, writes, reads = 40_000, 30_000, 30_000
	want := map[string]shown{}
	for _, c := range []struct {
		op, counter string
		count       uint64
	}{{"send", "near-sent", sends}, {"rdma_write", "near-written", writes}, {"rdma_read", "near-read", reads}} {
		if p := post(t, c.op, c.count); p != (dataplane.Posted{Completed: c.count}) {
			t.Fatalf("%d of %s ended as %+v", c.count, c.op, p)
		}
		want[c.counter] = shown{Completions: c.count}
	}
	want["far-received"] = shown{Completions: sends}
	total := sends + writes + reads
	took := time.Since(start)
	checkShown(t, want)
	t.Logf("%d operations posted, completed and shown exactly: %d sent and received, %d written, %d read; %s, %.0f/s",
		total, sends, writes, reads, took.Round(time.Millisecond), float64(total)/took.Seconds())

	// A wrong key: the peer refuses the first write and both ends are in error. Every write that
	// is outstanding ends in error here, and there every buffer that waited for what arrives.
	near := queuePairs(t)["near"]
	peer, err := dataplane.ParseQueuePairAddress(near.Peer)
	if err != nil {
		t.Fatal(err)
	}
	peer.RKey ^= 0xff
	command(t, program(t, "flowtally"), "queue-pairs", "connect", "--instance", qpInstance, "near", peer.String())
	command(t, program(t, "flowtally"), "queue-pairs", "connect", "--instance", qpInstance, "far", near.Local)
	flushed := get(t)
	const refused = 256 // the send depth: what is outstanding when the first is refused
	if p := post(t, "rdma_write", 1000); p != (dataplane.Posted{Errors: refused}) {
		t.Errorf("writes with a wrong key ended as %+v, want %d in error", p, refused)
	}
	want["near-written"] = shown{Completions: writes, Errors: refused}
	want["far-received"] = shown{Completions: sends, Errors: flushed["far-received"].Errors + qpReceives}
	checkShown(t, want)
	pairs := queuePairs(t)
	if pairs["near"].State != "ERR" || pairs["far"].State != "ERR" {
		t.Errorf("the queue pairs are in %s and %s, want ERR", pairs["near"].State, pairs["far"].State)
	}
	said := command(t, program(t, "flowtally"), "queue-pairs", "list", "--instance", qpInstance)
	if !strings.Contains(said, "queue-pair-error") {
		t.Errorf("nothing is said of the error:\n%s", said)
	}
	t.Logf("in error: %d writes, %d receives flushed\n%s", refused, qpReceives, said)

	command(t, program(t, "flowtally"), "queue-pairs", "connect", "--instance", qpInstance, "near")
	want = get(t) // connecting anew may flush what was posted since
	posted := command(t, program(t, "flowtally"), "queue-pairs", "post", "--instance", qpInstance, "near", "send", "--count", "1000")
	if fields := strings.Fields(posted); !slices.Equal(fields[len(fields)-4:], []string{"near", "send", "1,000", "0"}) {
		t.Errorf("after mending, 1000 were sent as\n%s", posted)
	}
	for name, n := range map[string]uint64{"near-sent": 1000, "far-received": 1000} {
		s := want[name]
		s.Completions += n
		want[name] = s
	}
	checkShown(t, want)
	if want["near-sent"] != (shown{Completions: sends + 1000}) {
		t.Errorf("near-sent ended at %+v", want["near-sent"])
	}
	t.Logf("mended, and shown by flowtally get:\n%s%s", posted, command(t, program(t, "flowtally"), "get", "--instance", qpInstance))
}

// startInstance runs `flowtally run` until the end of the test.
func startInstance(t *testing.T, config string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "qp.yaml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(program(t, "flowtally"), "run", "--config", file)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("flowtally run ended: %v", err)
			}
		case <-time.After(30 * time.Second):
			_ = cmd.Process.Kill()
			t.Error("flowtally run did not end")
		}
		if t.Failed() {
			t.Logf("flowtally run wrote:\n%s", log.String())
		}
		if err := demo.Sweep(qpInstance); err != nil {
			t.Error(err)
		}
	})
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if exec.Command(program(t, "flowtally"), "queue-pairs", "list", "--instance", qpInstance).Run() == nil {
			return
		}
		select {
		case err := <-ended:
			ended <- nil
			t.Fatalf("flowtally run ended: %v\n%s", err, log.String())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("flowtally run does not answer")
		}
	}
}

// listed is a queue pair in the JSON of `flowtally queue-pairs list`.
type listed struct {
	Name, State, Backend, Mode, Local, Peer string
	Rejected                                []struct{ Source, Reason string }
}

func queuePairs(t *testing.T) map[string]listed {
	t.Helper()
	var j struct {
		QueuePairs []listed `json:"queue_pairs"`
	}
	decode(t, command(t, program(t, "flowtally"), "queue-pairs", "list", "-o", "json", "--instance", qpInstance), &j)
	out := make(map[string]listed)
	for _, q := range j.QueuePairs {
		out[q.Name] = q
	}
	return out
}

// checkSource: rxe has ibv_poll_cq and nothing better, and it is said why not.
func checkSource(t *testing.T) {
	t.Helper()
	pairs := queuePairs(t)
	if len(pairs) != 2 {
		t.Fatalf("queue pairs %+v, want near and far", pairs)
	}
	for _, q := range pairs {
		if q.State != "RTS" || q.Backend != "rdma" || q.Mode != "poll_cq" {
			t.Errorf("%s is in state %s and counted by %s %s, want RTS and rdma poll_cq", q.Name, q.State, q.Backend, q.Mode)
		}
		reasons := make(map[string]string)
		for _, r := range q.Rejected {
			reasons[r.Source] = r.Reason
			t.Logf("%s: not %s: %s", q.Name, r.Source, r.Reason)
		}
		for _, better := range []string{"comp_cntr", "collapsed_cq", "cq_ring"} {
			if reasons[better] == "" {
				t.Errorf("%s does not say why %s does not count", q.Name, better)
			}
		}
	}
}

// post posts to near and answers how it ended. Errors are an answer here.
func post(t *testing.T, op string, count uint64) dataplane.Posted {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(t, "flowtally"), "queue-pairs", "post", "--instance", qpInstance, "-o", "json", "near", op, "--count", fmt.Sprint(count))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var p dataplane.Posted
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) || len(out) == 0 {
		t.Fatalf("posting %d of %s: %v\n%s", count, op, err, stderr.String())
	}
	decode(t, string(out), &p)
	if (err != nil) != (p.Errors > 0) {
		t.Errorf("posting %d of %s answers %+v and ends with %v: %s", count, op, p, err, stderr.String())
	}
	return p
}

// shown is a completion counter as `flowtally get` shows it.
type shown struct{ Completions, Errors uint64 }

func get(t *testing.T) map[string]shown {
	t.Helper()
	var j struct {
		Counters []struct {
			Name, Kind          string
			Completions, Errors *uint64
			Valid               bool
		}
	}
	decode(t, command(t, program(t, "flowtally"), "get", "-o", "json", "--instance", qpInstance), &j)
	out := make(map[string]shown)
	for _, c := range j.Counters {
		if c.Kind != "completion" || c.Completions == nil || c.Errors == nil || !c.Valid {
			t.Fatalf("flowtally get shows %+v", c)
		}
		out[c.Name] = shown{*c.Completions, *c.Errors}
	}
	return out
}

// checkShown waits until the mirror shows want: what completed is published by the next poll
// cycle. Once it does, it must go on doing so.
func checkShown(t *testing.T, want map[string]shown) {
	t.Helper()
	var got map[string]shown
	same := func() bool {
		got = get(t)
		for name, w := range want {
			if got[name] != w {
				return false
			}
		}
		return len(got) == len(want)
	}
	for deadline := time.Now().Add(20 * time.Second); !same(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("flowtally get shows %+v, want %+v", got, want)
		}
	}
	time.Sleep(100 * time.Millisecond)
	if !same() {
		t.Errorf("flowtally get went on to %+v, want %+v", got, want)
	}
}

// gidIndex is the row of a device's GID table that holds an IPv4 address.
func gidIndex(t *testing.T, device, addr string) int {
	t.Helper()
	want := netip.AddrFrom16(netip.MustParseAddr(addr).As16())
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		for i := range 16 {
			text, err := os.ReadFile(fmt.Sprintf("/sys/class/infiniband/%s/ports/1/gids/%d", device, i))
			if err != nil {
				continue
			}
			if gid, err := netip.ParseAddr(strings.TrimSpace(string(text))); err == nil && gid == want {
				return i
			}
		}
	}
	t.Fatalf("%s has no GID of %s", device, addr)
	return 0
}

func decode(t *testing.T, text string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
}
