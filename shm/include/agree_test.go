package include

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/internal/lab/golden"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/shm"
)

// newMirror makes a mirror in a directory of its own on the tmpfs.
func newMirror(t *testing.T, o shm.Options) (string, *shm.Writer) {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "flowtally-c-")
	if err != nil {
		need.Missing(t, "shm", err.Error())
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	o.Path = filepath.Join(dir, "c.mirror")
	w, err := shm.Create(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return o.Path, w
}

// anew gives a mirror up and makes another one under its name.
func anew(t *testing.T, w *shm.Writer, o shm.Options) *shm.Writer {
	t.Helper()
	if err := w.GiveUp(0); err != nil {
		t.Fatal(err)
	}
	o.Path, o.Replace = w.Path(), true
	next, err := shm.Create(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { next.Close() })
	return next
}

func add(t *testing.T, w *shm.Writer, e shm.Entry) shm.Handle {
	t.Helper()
	h, err := w.Add(e)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// value is the n-th value of a counter, as testdata/torn.c expects it.
func value(n uint64) shm.Value {
	return shm.Value{Packets: n, Bytes: 1500 * n, SampledAt: int64(10*n + 1)}
}

// furnish fills a mirror with a bit of everything: counters in two blocks and
// in records, full and empty descriptions, removed and reused slots, counters
// that were never sampled, a history that has come round.
func furnish(t *testing.T, w *shm.Writer) {
	t.Helper()
	var handles []shm.Handle
	for i := range 100 {
		handles = append(handles, add(t, w, shm.Entry{Name: fmt.Sprintf("c%d", i), Kind: "flow", Unit: "frames",
			Text: "ipv4 dst 192.0.2.1", Labels: map[string]string{"tier": "web", "n": fmt.Sprint(i)},
			Source: "xdp eth0 native", ByteBasis: "l2", Valid: i%3 != 0, Stale: i%5 == 0, Ambiguous: i%7 == 0,
			Continuity: shm.Continuity{Discontinuities: uint64(i)}}))
	}
	for i := range 3 {
		handles = append(handles, add(t, w, shm.Entry{Name: fmt.Sprintf("fast%d", i), Latency: true, Text: strings.Repeat("x", 400)}))
	}
	cycle := func(blocks ...int) {
		if err := w.SetPollPeriod(7 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
		n := w.BeginCycle()
		for _, b := range blocks {
			var values shm.Block
			for i := range values {
				values[i] = value(1000*n + uint64(i))
			}
			w.PublishBlock(b, &values)
		}
		for _, h := range handles[100:102] { // the third is never sampled
			w.PublishRecord(h.Index, value(n))
		}
		for _, h := range handles[:3] {
			w.AppendHistory(h, value(n))
		}
		w.EndCycle(shm.Now())
	}
	cycle(0, 1)
	for i, h := range handles[10:20] {
		if err := w.SetLive(h, shm.LiveSlot{Map: 7, Epoch: 1, Slot: uint32(i), BasePackets: 100}); err != nil { // the last slots are not there
			t.Fatal(err)
		}
	}
	furnishDevices(t, w, handles[2], handles[40], handles[50], handles[101])
	for _, i := range []int{1, 40, 99, 100} {
		if err := w.Remove(handles[i]); err != nil {
			t.Fatal(err)
		}
	}
	cycle(0)
	time.Sleep(5 * time.Millisecond) // longer than the cool-down: slots are reused now
	for i := range 3 {
		add(t, w, shm.Entry{Name: fmt.Sprintf("again%d", i)})
	}
	add(t, w, shm.Entry{Name: "fast again", Latency: true})
	cycle(0, 1)
	add(t, w, shm.Entry{Name: "late"})
	for range 20 {
		cycle(1)
	}
}

// furnishDevices lets a device count for some counters, round and round: each
// word stands elsewhere than its total.
func furnishDevices(t *testing.T, w *shm.Writer, hs ...shm.Handle) {
	t.Helper()
	seg, err := w.DeviceSegment(len(hs) + 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range hs {
		s, err := seg.Slot()
		if err != nil {
			t.Fatal(err)
		}
		limit := []uint64{255, 999, 1<<32 - 1, 1<<64 - 1}[i%4]
		comp, errs := s.Words()
		binary.NativeEndian.PutUint64(comp, limit-20)
		if err := w.SetDevice(h, s, 1000*uint64(i+1), 7, limit); err != nil {
			t.Fatal(err)
		}
		binary.NativeEndian.PutUint64(comp, 9) // 30 more, past the end
		binary.NativeEndian.PutUint64(errs, uint64(i))
		if done, failed, err := s.Rebase(); done != 1000*uint64(i+1)+30 || failed != 7+uint64(i) || err != nil {
			t.Fatalf("device shows %d and %d, %v", done, failed, err)
		}
	}
	if err := w.ClearDevice(hs[2]); err != nil {
		t.Fatal(err)
	}
}

// C and Go must read the same from a mirror with a writer at work, from one
// whose writer is dead, and from the golden one.
func TestCAgreesWithGo(t *testing.T) {
	dump := build(t, "dump", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
	check := func(t *testing.T, path string) {
		t.Helper()
		if diff := cmp.Diff(dumpGo(t, path), run(t, dump, path)); diff != "" {
			t.Errorf("Go reads -, C reads +:\n%s", diff)
		}
	}
	options := shm.Options{Counters: 256, LatencyCounters: 8, History: 32, CoolDown: time.Millisecond}
	t.Run("live", func(t *testing.T) {
		path, w := newMirror(t, options)
		check(t, path)
		furnish(t, w)
		check(t, path)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		check(t, path)
	})
	t.Run("neither records nor history", func(t *testing.T) {
		path, w := newMirror(t, shm.Options{Counters: 64, LatencyCounters: -1, History: -1})
		add(t, w, shm.Entry{Name: "a"})
		check(t, path)
	})
	t.Run("grown", func(t *testing.T) {
		path, w := newMirror(t, shm.Options{History: 32, CoolDown: time.Millisecond}) // no limits
		furnish(t, w)
		before := strings.Count(run(t, dump, path), "device\t")
		for _, latency := range []bool{false, true} {
			for i := range shm.SegmentLen + 70 {
				add(t, w, shm.Entry{Name: fmt.Sprintf("more %v %d", latency, i), Latency: latency})
			}
		}
		third := w.Entries()[shm.SegmentLen].Handle.Index / shm.BlockLen
		var values shm.Block
		for i := range values {
			values[i] = value(uint64(7000 + i))
		}
		w.BeginCycle()
		w.PublishBlock(int(third), &values)
		w.EndCycle(shm.Now())
		check(t, path)
		if n := strings.Count(run(t, dump, path), "device\t"); n != 2 || n != before {
			t.Errorf("devices of %d counters, %d before", n, before)
		}
	})
	t.Run("taken over", func(t *testing.T) {
		path, w := newMirror(t, options)
		furnish(t, w)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		later := options
		later.Path, later.Counters, later.LatencyCounters = path, 0, -1
		w, err := shm.Create(later)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		check(t, path)
	})
	golden, err := filepath.Glob("../testdata/*.mirror.gz")
	if err != nil || len(golden) < 2 {
		t.Fatalf("golden files: %q, %v", golden, err)
	}
	for _, packed := range golden {
		t.Run(filepath.Base(packed), func(t *testing.T) { check(t, unpacked(t, packed)) })
	}
}

// unpacked returns a copy of a packed golden file, with its device segment beside it.
func unpacked(t *testing.T, packed string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), strings.TrimSuffix(filepath.Base(packed), ".gz"))
	if err := os.WriteFile(path, golden.Unpack(t, packed), 0o600); err != nil {
		t.Fatal(err)
	}
	device, err := os.ReadFile(strings.TrimSuffix(packed, ".mirror.gz") + ".device")
	if err == nil {
		err = os.WriteFile(strings.TrimSuffix(path, ".mirror")+".device", device, 0o600)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return path
}

// codes are the numbers of flowtally.h for the sentinels of package shm.
func code(t *testing.T, err error) int {
	t.Helper()
	for _, c := range []struct {
		err  error
		code int
	}{{shm.ErrGone, -17}, {shm.ErrBusy, -18}} {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	t.Fatalf("no code for %v", err)
	return 0
}

func printDevice(t *testing.T, b *strings.Builder, r *shm.Reader, h shm.Handle) {
	t.Helper()
	d, err := r.Device(h)
	if errors.Is(err, shm.ErrNoDevice) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	done, failed, err := d.Load()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(b, "device\t%d\t%d\t%d\t%d\n", h.Index, h.Generation, done, failed)
}

// dumpGo prints the output of testdata/dump.c through package shm.
func dumpGo(t *testing.T, path string) string {
	t.Helper()
	var b strings.Builder
	r, err := shm.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	bit := map[bool]int{true: 1}
	s := r.Status()
	fmt.Fprintf(&b, "status\t%v\t%016x\t%d\t%d\n", s.State, s.Generation, s.Takeovers, s.Cycle)
	fmt.Fprintf(&b, "fill\t%d\t%d\t%d\t%d\t%d\n", s.Counters, s.CountersUsed, s.Records, s.RecordsUsed, s.Refused)
	fmt.Fprintf(&b, "period\t%d\n", s.PollPeriod.Nanoseconds())
	fmt.Fprintf(&b, "size\t%d\t%d\t%d\t%016x\t%d\n", (s.Counters+s.Records)/shm.SegmentLen, uint32(s.CounterLimit), uint32(s.RecordLimit),
		s.File, bit[s.Replaced])
	var snap shm.Snapshot
	if err := r.Snapshot(&snap); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "label\t%d\t%d\t%d\t%d\n", snap.MinCycle, snap.MaxCycle, snap.Oldest, snap.Newest)
	entries, err := r.Entries()
	if err != nil {
		t.Fatal(err)
	}
	printValue := func(kind string, h shm.Handle, v shm.Value, err error) {
		if err != nil {
			fmt.Fprintf(&b, "%s\t%d\t%d\t%d\n", kind, h.Index, h.Generation, code(t, err))
			return
		}
		fmt.Fprintf(&b, "%s\t%d\t%d\t%d\t%d\t%d\n", kind, h.Index, h.Generation, v.Packets, v.Bytes, v.SampledAt)
	}
	for _, e := range entries {
		labels := make([]string, 0, len(e.Labels))
		for _, key := range slices.Sorted(maps.Keys(e.Labels)) {
			labels = append(labels, key+"="+e.Labels[key])
		}
		if e.Unit == "" {
			e.Unit = "packets"
		}
		fmt.Fprintf(&b, "entry\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%d%d%d\t%d\t%s\n", e.Handle.Index, e.Handle.Generation, e.Name, e.Kind,
			e.Unit, e.Text, e.Source, e.ByteBasis, bit[e.Valid], bit[e.Stale], bit[e.Ambiguous], e.Continuity.Discontinuities,
			strings.Join(labels, ";"))
		c, err := r.Counter(e.Handle)
		var v shm.Value
		if err == nil {
			v, err = c.Load()
		}
		printValue("load", e.Handle, v, err)
		v, err = snap.Value(e.Handle)
		printValue("snap", e.Handle, v, err)
		printDevice(t, &b, r, e.Handle)
	}
	cursor, err := r.History()
	if err != nil {
		t.Fatal(err)
	}
	cursor.Rewind()
	records := make([]shm.Record, 7)
	for {
		n, _, err := cursor.Next(records)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return b.String()
		}
		for _, rec := range records[:n] {
			if rec.Kind == 0 {
				fmt.Fprintf(&b, "history\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", rec.Position, rec.Handle.Index, rec.Handle.Generation,
					rec.Value.SampledAt, rec.Value.Packets, rec.Value.Bytes, rec.Cycle)
			}
		}
	}
}
