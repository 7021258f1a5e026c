package cli

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/shm"
)

// mkmirror implements "mkmirror MODE PATH SPEC [N]". It writes a mirror with the counters in the file SPEC, one per
// line: NAME KIND PACKETS BYTES SOURCE BASIS [FLAGS]. An "_" in SOURCE is a blank. FLAGS are invalid, stale,
// ambiguous, latency, absent, gaps=N, the direction ingress or egress, and label:KEY=VALUE. Once the first values are
// published it creates PATH.ready.
func mkmirror() {
	if err := runMkmirror(os.Args[1], os.Args[2], os.Args[3], os.Args[4:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runMkmirror(mode, path, spec string, args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	history := roomyHistory
	if mode == "lap" {
		history = lapHistory
	}
	t, err := newTestWriter(path, spec, history)
	if err != nil {
		return err
	}
	t.publish(false)
	if err := os.WriteFile(path+".ready", nil, 0o644); err != nil {
		return err
	}
	switch mode {
	case "crash":
		return nil
	case "serve":
		for ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond)
			if text, err := os.ReadFile(path + ".late"); err == nil {
				age, err := time.ParseDuration(strings.TrimSpace(string(text)))
				if err == nil { // else it is being written
					t.w.Heartbeat(shm.Now() - int64(age))
				}
				continue
			}
			t.count()
			t.publish(true)
		}
	case "lap":
		n, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		for _, err := os.Stat(path + ".go"); err != nil && ctx.Err() == nil; _, err = os.Stat(path + ".go") {
			time.Sleep(20 * time.Millisecond)
			t.count()
			t.publish(true)
		}
		for range n {
			t.count()
			t.publish(true)
		}
		if err := os.WriteFile(path+".lapped", nil, 0o644); err != nil {
			return err
		}
		for ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
			t.w.Heartbeat(shm.Now())
		}
	}
	return t.w.Close()
}

// testWriter is a writer of the counters in a spec.
type testWriter struct {
	w        *shm.Writer
	counters []testCounter
}

type testCounter struct {
	handle  shm.Handle
	value   shm.Value
	latency bool
	absent  bool

	completion, fails bool
}

// webMirror creates a mirror with one counter, web, that has a value.
func webMirror(t *testing.T) (path string, w *testWriter) {
	t.Helper()
	dir := t.TempDir()
	spec, path := filepath.Join(dir, "spec"), filepath.Join(dir, "m", "x.mirror")
	if err := os.WriteFile(spec, []byte("web flow 10 640 sim l2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	w, err := newTestWriter(path, spec, lapHistory)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.w.Close() })
	w.publish(false)
	return path, w
}

// lapHistory is the capacity of a ring that tests lap. roomyHistory is so large that no reader of a
// script is too slow for it: 10 minutes of two counters.
const (
	lapHistory   = 64
	roomyHistory = 1 << 16
)

// testHeartbeat is how often a writer of tests is expected to show a sign of life: without one it is
// stale after twice as long, which is more than a busy machine keeps it from the CPU.
const testHeartbeat = 10 * time.Second

func newTestWriter(path, spec string, history int) (*testWriter, error) {
	f, err := os.Open(spec)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	w, err := shm.Create(shm.Options{
		Path: path, History: history, HeartbeatPeriod: testHeartbeat,
	})
	if err != nil {
		return nil, err
	}
	t := &testWriter{w: w}
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) == 0 {
			continue
		}
		if err := t.add(fields); err != nil {
			return nil, fmt.Errorf("%q: %w", s.Text(), err)
		}
	}
	w.SetState(shm.Run)
	return t, nil
}

func (t *testWriter) add(fields []string) error {
	if len(fields) < 6 {
		return fmt.Errorf("%d fields, want 6", len(fields))
	}
	packets, err := strconv.ParseUint(fields[2], 10, 64)
	if err != nil {
		return err
	}
	bytes, err := strconv.ParseUint(fields[3], 10, 64)
	if err != nil {
		return err
	}
	e := shm.Entry{Name: fields[0], Kind: fields[1], Source: strings.ReplaceAll(fields[4], "_", " "), ByteBasis: fields[5], Valid: true}
	c := testCounter{value: shm.Value{Packets: packets, Bytes: bytes}, completion: e.Kind == shm.KindCompletion, fails: strings.HasSuffix(e.Name, "-errors")}
	for _, flag := range fields[6:] {
		name, n, _ := strings.Cut(flag, "=")
		if key, is := strings.CutPrefix(name, "label:"); is {
			if e.Labels == nil {
				e.Labels = make(map[string]string)
			}
			e.Labels[key] = n
			continue
		}
		switch name {
		case "ingress", "egress":
			e.Text = name + " on any: any"
		case "invalid":
			e.Valid = false
		case "stale":
			e.Stale = true
		case "ambiguous":
			e.Ambiguous = true
		case "latency":
			e.Latency, c.latency = true, true
		case "absent":
			c.absent = true
		case "gaps":
			if e.Continuity.Discontinuities, err = strconv.ParseUint(n, 10, 64); err != nil {
				return err
			}
		default:
			return fmt.Errorf("unknown flag %q", flag)
		}
	}
	if c.handle, err = t.w.Add(e); err != nil {
		return err
	}
	t.counters = append(t.counters, c)
	return nil
}

func (t *testWriter) count() {
	for i := range t.counters {
		c := &t.counters[i]
		switch {
		case !c.completion:
			c.value.Packets++
			c.value.Bytes += 64
		case c.fails:
			c.value.Bytes++
		default:
			c.value.Packets++
		}
	}
}

func (t *testWriter) publish(history bool) {
	now := shm.Now()
	t.w.BeginCycle()
	var block shm.Block
	for i := range t.counters {
		c := &t.counters[i]
		if c.absent {
			continue
		}
		c.value.SampledAt = now
		if c.latency {
			t.w.PublishRecord(c.handle.Index, c.value)
		} else {
			block[c.handle.Index%shm.BlockLen] = c.value
		}
		if history {
			t.w.AppendHistory(c.handle, c.value)
		}
	}
	t.w.PublishBlock(0, &block)
	t.w.EndCycle(now)
	t.w.Heartbeat(now)
}
