package include

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/shm"
)

// patience is a heartbeat period that no load of a test machine outlasts.
const patience = time.Hour

func show(w *shm.Writer, h shm.Handle, v shm.Value) {
	w.BeginCycle()
	var b shm.Block
	b[h.Index%shm.BlockLen] = v
	w.PublishBlock(int(h.Index/shm.BlockLen), &b)
	w.EndCycle(shm.Now())
}

// Waiters in C and in Go run beside one writer. No wake may be missed, and none
// may be too early. A waiter in C has missed a wake if it slept until its own next
// look although the cycle that it waited for had ended before.
func TestCAndGoWaitersMissNoWake(t *testing.T) {
	const waiters, values = 3, 1 << 22
	waits, random := 1000, seed.Rand(t)
	if testing.Short() {
		waits = 200
	}
	program := build(t, "wait")
	path, w := newMirror(t, shm.Options{Counters: 64, HeartbeatPeriod: patience})
	h := add(t, w, shm.Entry{Name: "a"})
	show(w, h, value(1))
	ended := make([]atomic.Int64, values) // by value: when the cycle that showed it had ended
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for n := uint64(2); n < values; n++ {
			show(w, h, value(n))
			ended[n].Store(shm.Now())
			select {
			case <-stop:
				return
			default:
			}
			if d := time.Duration(random.ExpFloat64() * float64(50*time.Microsecond)); d > 10*time.Microsecond {
				time.Sleep(d)
			}
		}
	}()
	var group sync.WaitGroup
	outputs := make(chan string, waiters)
	for i := range waiters {
		group.Go(func() {
			out, err := exec.CommandContext(t.Context(), program, path, "a", "many", fmt.Sprint(waits), fmt.Sprint(i)).CombinedOutput()
			if err != nil {
				t.Errorf("C: %v: %s", err, out)
			}
			outputs <- string(out)
		})
		group.Go(func() { waitGo(t, path, h, waits, uint64(i)) })
	}
	group.Wait()
	close(stop)
	<-stopped
	close(outputs)
	for out := range outputs {
		total := ""
		for line := range strings.Lines(out) {
			var threshold uint64
			var until int64
			if n, _ := fmt.Sscanf(line, "out %d %d", &threshold, &until); n != 2 {
				total += line
			} else if at := ended[threshold].Load(); at != 0 && at < until {
				t.Errorf("slept until %v after the cycle that reached %d had ended", time.Duration(until-at), threshold)
			}
		}
		var made, sleeps, woken int
		if _, err := fmt.Sscanf(total, "waits %d sleeps %d woken %d", &made, &sleeps, &woken); err != nil || made != waits || woken == 0 {
			t.Errorf("%q: %v", total, err)
		}
		t.Log(strings.TrimSpace(total))
	}
}

func waitGo(t *testing.T, path string, h shm.Handle, waits int, seed uint64) {
	r, err := shm.OpenReader(path)
	if err != nil {
		t.Error(err)
		return
	}
	defer r.Close()
	steps := rand.New(rand.NewPCG(seed, 2))
	for last := uint64(1); waits > 0; waits-- {
		threshold := last + 1 + steps.Uint64N(8)
		v, err := r.Wait(t.Context(), h, threshold)
		if err != nil || v.Packets < threshold || v != value(v.Packets) {
			t.Errorf("Go: waiting for %d: %v, %v", threshold, v, err)
			return
		}
		last = v.Packets
	}
}

// Each case is something that happens while ft_wait or ft_wait_change sleeps, and the result that it must return.
func TestCWaitEndsWithTheReasonOfItsEnd(t *testing.T) {
	program := build(t, "wait", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
	const minute = "60000000000"
	for _, tt := range []struct {
		name  string
		kind  string
		first shm.Value // before; zero: never sampled
		args  string
		then  func(t *testing.T, w *shm.Writer, h shm.Handle)
		want  string
	}{
		{name: "reached already", first: value(5), args: "one 5 0", want: "0 5 7500 51"},
		{name: "not reached, and no time", first: value(5), args: "one 6 0", want: "-24 5 7500 51"},
		{name: "no value is not 0", args: "one 0 0", want: "-24 0 0 0"},
		{name: "a microsecond", first: value(5), args: "one 6 1000", want: "-24 5 7500 51"},
		{name: "31 microseconds", first: value(5), args: "one 6 31000", want: "-24 5 7500 51"},
		{name: "more than a renewal", first: value(5), args: "one 6 600000000", want: "-24 5 7500 51"},
		{name: "longest", first: value(5), args: "one 6 9223372036854775807", then: shows(value(6)), want: "0 6 9000 61"},
		{name: "none", first: value(5), args: "one 6 18446744073709551615", then: shows(value(6)), want: "0 6 9000 61"},
		{name: "reached", first: value(5), args: "one 6 " + minute, then: shows(value(6)), want: "0 6 9000 61"},
		{name: "an error", kind: "completion", first: shm.Value{Packets: 5, SampledAt: 1}, args: "one 6 " + minute,
			then: shows(shm.Value{Packets: 5, Bytes: 1, SampledAt: 2}), want: "-26 5 1 2"},
		{name: "reached with an error", kind: "completion", first: shm.Value{Packets: 5, SampledAt: 1}, args: "one 6 " + minute,
			then: shows(shm.Value{Packets: 6, Bytes: 1, SampledAt: 2}), want: "0 6 1 2"},
		{name: "bytes of a flow", kind: "flow", first: value(5), args: "one 6 " + minute,
			then: shows(shm.Value{Packets: 5, Bytes: 1, SampledAt: 2}, value(6)), want: "0 6 9000 61"},
		{name: "change", first: value(5), args: "change 5 7500 51 " + minute,
			then: shows(shm.Value{Packets: 5, Bytes: 7500, SampledAt: 2}, value(6)), want: "0 6 9000 61"},
		{name: "changed before", first: value(5), args: "change 4 6000 41 0", want: "0 5 7500 51"},
		{name: "no change", first: value(5), args: "change 5 7500 1 0", want: "-24 5 7500 51"},
		{name: "first sample", args: "change 0 0 0 " + minute, then: shows(shm.Value{SampledAt: 1}), want: "0 0 0 1"},
		{name: "removed", first: value(5), args: "one 6 " + minute, want: "-17 5 7500 51", then: func(t *testing.T, w *shm.Writer, h shm.Handle) {
			if err := w.Remove(h); err != nil {
				t.Error(err)
			}
			show(w, h, shm.Value{}) // of no counter: a cycle, and with it the wake
		}},
		{name: "writer ends", first: value(5), args: "one 6 " + minute, want: "-25 5 7500 51", then: func(t *testing.T, w *shm.Writer, h shm.Handle) {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}},
		{name: "writer falls silent", first: value(5), args: "one 6 " + minute, want: "-25 5 7500 51",
			then: func(t *testing.T, w *shm.Writer, h shm.Handle) { w.Heartbeat(shm.Now() - 3*int64(patience)) }},
		{name: "cut short", first: value(5), args: "one 6 " + minute, want: "-7 5 7500 51", then: func(t *testing.T, w *shm.Writer, h shm.Handle) {
			st, err := os.Stat(w.Path())
			if err == nil {
				err = os.Truncate(w.Path(), 0)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Truncate(w.Path(), st.Size()) }) // the writer has yet to close it
		}},
		{name: "given up", first: value(5), args: "one 6 " + minute, want: "-15 5 7500 51", then: func(t *testing.T, w *shm.Writer, h shm.Handle) {
			if err := w.GiveUp(7); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path, w := newMirror(t, shm.Options{Counters: 64, LatencyCounters: -1, HeartbeatPeriod: patience})
			h := add(t, w, shm.Entry{Name: "a", Kind: tt.kind})
			show(w, add(t, w, shm.Entry{Name: "b"}), shm.Value{})
			if tt.first != (shm.Value{}) {
				show(w, h, tt.first)
			}
			var out bytes.Buffer
			cmd := exec.CommandContext(t.Context(), program, append([]string{path, "a"}, strings.Fields(tt.args)...)...)
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if tt.then != nil {
				asleep(t, cmd.Process.Pid)
				tt.then(t, w, h)
			}
			err := cmd.Wait()
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if got := lines[len(lines)-1]; err != nil || got != tt.want {
				t.Errorf("%s, %v; want %s", &out, err, tt.want)
			}
		})
	}
}

// shows publishes values one after the other.
func shows(values ...shm.Value) func(*testing.T, *shm.Writer, shm.Handle) {
	return func(t *testing.T, w *shm.Writer, h shm.Handle) {
		for _, v := range values {
			show(w, h, v)
			time.Sleep(2 * time.Millisecond)
		}
	}
}

// asleep returns when the process sleeps on a word that processes share.
func asleep(t *testing.T, pid int) {
	t.Helper()
	const waitBitset = 9                       // FUTEX_WAIT_BITSET, and no FUTEX_PRIVATE_FLAG
	futex := map[int]bool{202: true, 98: true} // on amd64, on arm64
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		var number, op int
		var word uint64
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid))
		if err != nil {
			t.Fatal(err)
		}
		if n, _ := fmt.Sscanf(string(text), "%d 0x%x 0x%x", &number, &word, &op); n == 3 && futex[number] && op == waitBitset {
			return
		}
	}
	t.Fatal("nobody sleeps")
}

// ft_wakeable agrees with Reader.Wakeable.
func TestCIsAsWakeable(t *testing.T) {
	need.Root(t) // to give a page away
	program := build(t, "wait")
	for _, tt := range []struct {
		name   string
		group  int
		spoil  func(page string) error
		want   string
		wanted error
	}{
		{"woken", 0, func(string) error { return nil }, "0", nil},
		{"no page is made", -1, func(string) error { return nil }, "-27", errors.ErrUnsupported},
		{"page is gone", 0, os.Remove, "-27", os.ErrNotExist},
		{"page has two names", 0, func(page string) error { return os.Link(page, page+"2") }, "0", nil},
		{"page is another's", 0, func(page string) error { return os.Chown(page, 54321, -1) }, "-6", shm.ErrPermission},
		{"page is short", 0, func(page string) error { return os.Truncate(page, 4095) }, "-7", shm.ErrTruncated},
		{"page is none", 0, func(page string) error {
			return errors.Join(os.Remove(page), os.WriteFile(page, make([]byte, 4096), 0o600))
		}, "-27", errors.ErrUnsupported},
		{"page is of another writer", 0, func(page string) error {
			b, err := os.ReadFile(page)
			b[16]++
			return errors.Join(err, os.Remove(page), os.WriteFile(page, b, 0o600))
		}, "-27", errors.ErrUnsupported},
		{"page is a fifo", 0, func(page string) error { return errors.Join(os.Remove(page), unix.Mkfifo(page, 0o600)) }, "-5", shm.ErrPermission},
		{"page is a link", 0, func(page string) error { return errors.Join(os.Rename(page, page+"2"), os.Symlink(page+"2", page)) }, "-4", nil},
		{"page is a directory", 0, func(page string) error { return errors.Join(os.Remove(page), os.Mkdir(page, 0o755)) }, "-5", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path, w := newMirror(t, shm.Options{Counters: 64, HeartbeatPeriod: patience, WaitGroup: tt.group})
			show(w, add(t, w, shm.Entry{Name: "a"}), value(1))
			if err := tt.spoil(strings.TrimSuffix(path, ".mirror") + ".wait"); err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSpace(run(t, program, path, "a", "wakeable")); got != tt.want {
				t.Errorf("C: %s, want %s", got, tt.want)
			}
			r, err := shm.OpenReader(path)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if err := r.Wakeable(); (err == nil) != (tt.want == "0") || tt.wanted != nil && !errors.Is(err, tt.wanted) {
				t.Errorf("Go: %v", err)
			}
		})
	}
}
