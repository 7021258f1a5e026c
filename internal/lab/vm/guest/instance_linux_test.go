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
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/lab/demo"
	"github.com/flowtally/flowtally/shm"
)

// startInstance runs `flowtally run` until the end of the test.
func startInstance(t *testing.T, instance, config string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), instance+".yaml")
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
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			t.Error("flowtally run did not end")
		}
		if t.Failed() {
			t.Logf("flowtally run wrote:\n%s", log.String())
		}
		if err := demo.Sweep(instance); err != nil {
			t.Error(err)
		}
	})
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if exec.Command(program(t, "flowtally"), "queue-pairs", "list", "--instance", instance).Run() == nil {
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

func queuePairs(t *testing.T, instance string) map[string]listed {
	t.Helper()
	var j struct {
		QueuePairs []listed `json:"queue_pairs"`
	}
	decode(t, command(t, program(t, "flowtally"), "queue-pairs", "list", "-o", "json", "--instance", instance), &j)
	out := make(map[string]listed)
	for _, q := range j.QueuePairs {
		out[q.Name] = q
	}
	return out
}

// checkSource: rxe has ibv_poll_cq and nothing better, and it is said why not.
func checkSource(t *testing.T) {
	t.Helper()
	pairs := queuePairs(t, qpInstance)
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

// post posts to a queue pair and returns the completions. Completions in error are a result here.
func post(t *testing.T, instance, name, op string, count uint64) dataplane.Posted {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(t, "flowtally"), "queue-pairs", "post", "--instance", instance, "-o", "json", name, op, "--count", fmt.Sprint(count))
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

func get(t *testing.T, instance string) map[string]shown {
	t.Helper()
	var j struct {
		Counters []struct {
			Name, Kind          string
			Completions, Errors *uint64
			Valid               bool
		}
	}
	decode(t, command(t, program(t, "flowtally"), "get", "-o", "json", "--instance", instance), &j)
	out := make(map[string]shown)
	for _, c := range j.Counters {
		if c.Kind != "completion" || c.Completions == nil || c.Errors == nil || !c.Valid {
			t.Fatalf("flowtally get shows %+v", c)
		}
		out[c.Name] = shown{*c.Completions, *c.Errors}
	}
	return out
}

// published is get after a poll cycle that began after the call: earlier completions are included.
func published(t *testing.T, instance string) map[string]shown {
	t.Helper()
	r, err := shm.OpenReader(shm.DefaultPath(instance), shm.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	begun, deadline := r.Status().Cycle+1, time.Now().Add(patience) // one may be under way
	for ; r.Status().Cycle <= begun; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s is at cycle %d of %d that are waited for", instance, r.Status().Cycle, begun+1)
		}
	}
	return get(t, instance)
}

// checkShown waits until the mirror shows want: the next poll cycle publishes every completion. The
// values must then stay.
func checkShown(t *testing.T, instance string, want map[string]shown) {
	t.Helper()
	var got map[string]shown
	same := func() bool {
		got = get(t, instance)
		for name, w := range want {
			if got[name] != w {
				return false
			}
		}
		return len(got) == len(want)
	}
	for deadline := time.Now().Add(patience); !same(); time.Sleep(20 * time.Millisecond) {
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
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
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
