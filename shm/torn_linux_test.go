package shm

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/lab/times"
)

// Readers against a writer in another process that publishes at full speed, frees and reuses a slot all
// the time, and is killed with SIGKILL and replaced all the time: no read is torn, none goes back, none
// is of another counter, and the history's count of lost records is exact.

const tornCounters = 128

var tornOptions = Options{Counters: tornCounters, LatencyCounters: 2, History: 256, CoolDown: -1}

// tornWriter publishes until stop, which is asked now and then.
func tornWriter(w *Writer, stop func() bool) (err error) {
	have := make(map[string]Handle)
	n := uint64(0)
	for _, e := range w.Entries() {
		have[e.Name] = e.Handle
		if e.Name != "churn" {
			v, err := w.Last(e.Handle)
			if err != nil || !isPatterned(v) {
				return fmt.Errorf("took over %s with %v, %w", e.Name, v, err)
			}
			n = max(n, v.Packets)
		}
	}
	add := func(name string, latency bool) (h Handle) {
		h, ok := have[name]
		if !ok && err == nil {
			h, err = w.Add(Entry{Name: name, Latency: latency})
		}
		return h
	}
	for i := range tornCounters - 1 {
		add(fmt.Sprint("c", i), false)
	}
	fast := add("fast", true)
	churn := add("churn", false)
	var vals [2]Block
	for err == nil {
		if n++; n%64 == 0 && stop() {
			return nil
		}
		for i := range vals {
			for j := range vals[i] {
				vals[i][j] = patterned(n)
			}
		}
		vals[churn.Index/64][churn.Index%64] = patterned(uint64(churn.Generation)<<32 | n&0xffffffff)
		w.BeginCycle()
		w.PublishBlock(0, &vals[0])
		w.PublishRecord(fast.Index, patterned(n))
		w.PublishBlock(1, &vals[1])
		w.AppendHistory(fast, patterned(n))
		w.EndCycle(Now())
		if n%64 == 0 {
			if err = w.SetSource(churn, fmt.Sprint(n), "l2"); err != nil {
				return err
			}
			if err = w.Remove(churn); err == nil {
				churn, err = w.Add(Entry{Name: "churn"})
			}
		}
	}
	return err
}

// tornReader reads until stop, and counts the reads.
type tornReader struct {
	r       *Reader
	reads   atomic.Uint64
	changes atomic.Uint64 // values seen that were new
	gone    atomic.Uint64 // reads of the churning counter that told that it is gone
	same    uint64        // snapshots of one cycle
	snaps   uint64
	records uint64
	lost    uint64
}

func (x *tornReader) run(rnd *rand.Rand, stop func() bool) error {
	names := []string{"c0", "c63", "c64", "fast"}
	var cs []HandleCounter
	var hs []Handle
	for _, name := range names {
		h, err := x.r.Lookup(name)
		if err != nil {
			return err
		}
		c, err := x.r.Counter(h)
		if err != nil {
			return err
		}
		cs, hs = append(cs, c), append(hs, h)
	}
	last := make([]uint64, len(cs))
	cur, err := x.r.History()
	if err != nil {
		return err
	}
	at, recs := uint64(0), make([]Record, 100)
	var all, some Snapshot
	for round := 1; !stop(); round++ {
		if round%32 == 0 {
			time.Sleep(50 * time.Microsecond) // leave the writer a core
		}
		i := rnd.IntN(len(cs))
		for range 4096 {
			v, err := cs[i].Load()
			switch {
			case errors.Is(err, ErrBusy):
				continue
			case err != nil:
				return fmt.Errorf("%s: %w", names[i], err)
			case !isPatterned(v):
				return fmt.Errorf("%s: torn: %+v", names[i], v)
			case v.Packets < last[i]:
				return fmt.Errorf("%s: went back from %d to %d", names[i], last[i], v.Packets)
			case v.Packets > last[i]:
				x.changes.Add(1)
				last[i] = v.Packets
			}
		}
		x.reads.Add(4096)
		if rnd.IntN(16) == 0 { // now and then: it makes Lookup scan the catalogue
			if err := x.churning(); err != nil {
				return err
			}
		}
		if err := x.snapshots(&all, &some, hs); err != nil {
			return err
		}
		n, lost, err := cur.Next(recs)
		if err != nil {
			return err
		}
		for j, rec := range recs[:n] {
			if j == 0 {
				at += lost
			}
			if at++; x.records == 0 && j == 0 {
				at = rec.Position
			}
			if rec.Position != at || !isPatterned(rec.Value) {
				return fmt.Errorf("history: record %d where %d follows %d lost: %+v", rec.Position, at, lost, rec)
			}
		}
		x.records += uint64(n)
		x.lost += lost
	}
	return nil
}

// churning follows the counter that is removed and added all the time.
func (x *tornReader) churning() error {
	h, err := x.r.Lookup("churn")
	if err != nil {
		if errors.Is(err, ErrNotFound) || errors.Is(err, ErrBusy) {
			return nil
		}
		return err
	}
	c, err := x.r.Counter(h)
	for range 1000 {
		if err != nil {
			break
		}
		var v Value
		if v, err = c.Load(); err == nil && v != (Value{}) && (!isPatterned(v) || uint32(v.Packets>>32) != h.Generation) {
			return fmt.Errorf("churn: generation %d reads %+v, of generation %d", h.Generation, v, v.Packets>>32)
		}
		x.reads.Add(1)
	}
	if errors.Is(err, ErrGone) {
		x.gone.Add(1)
		return nil
	}
	if errors.Is(err, ErrBusy) {
		return nil
	}
	return err
}

func (x *tornReader) snapshots(all, some *Snapshot, hs []Handle) error {
	if err := x.r.Snapshot(all); err != nil && !errors.Is(err, ErrBusy) {
		return err
	} else if err == nil {
		if err := x.labelled(all, func(h Handle) (Value, error) { return all.Value(h) }, hs); err != nil {
			return fmt.Errorf("snapshot: %w", err)
		}
	}
	if err := x.r.SnapshotOf(some, hs[:3]); err != nil && !errors.Is(err, ErrBusy) {
		return err
	} else if err == nil {
		i := -1
		if err := x.labelled(some, func(Handle) (Value, error) { i++; return some.List[i], nil }, hs[:3]); err != nil {
			return fmt.Errorf("snapshot of a list: %w", err)
		}
	}
	return nil
}

// labelled holds a snapshot to its label: values of one cycle are of one number.
func (x *tornReader) labelled(s *Snapshot, value func(Handle) (Value, error), hs []Handle) error {
	x.snaps++
	if s.SameCycle {
		x.same++
	}
	first := uint64(0)
	for i, h := range hs {
		v, err := value(h)
		if err != nil {
			if errors.Is(err, ErrBusy) { // a saturated epoch, after 2^24 frees
				continue
			}
			return err
		}
		if !isPatterned(v) {
			return fmt.Errorf("torn: %+v", v)
		}
		if i == 0 {
			first = v.Packets
		}
		if s.SameCycle && v.Packets != first {
			return fmt.Errorf("of cycle %d, holds %d and %d", s.Cycle, first, v.Packets)
		}
		if v.SampledAt < s.Oldest || v.SampledAt > s.Newest {
			return fmt.Errorf("sampled at %d, label says %d to %d", v.SampledAt, s.Oldest, s.Newest)
		}
	}
	return nil
}

// met tells whether the readers saw enough of the writer's work to mean anything.
func met(readers []*tornReader) bool {
	changes, gone := uint64(0), uint64(0)
	for _, x := range readers {
		changes += x.changes.Load()
		gone += x.gone.Load()
	}
	if os.Getenv(emulator) != "" { // it is slow, and the cores are few
		return changes >= 100
	}
	return changes >= 500 && gone > 0
}

func (x *tornReader) String() string {
	return fmt.Sprintf("%d reads, %d changes seen, %d times gone, %d of %d snapshots of one cycle, %d records of history and %d lost",
		x.reads.Load(), x.changes.Load(), x.gone.Load(), x.same, x.snaps, x.records, x.lost)
}

func TestReadsAcrossProcessesAreNeverTorn(t *testing.T) {
	usual := 20_000_000
	if raceEnabled { // the detector does not see a mapped file, and takes its time
		usual = 1e6
	}
	target := uint64(times.Of(t, "FLOWTALLY_TORN_READS", usual, usual)) // of all readers together
	least := 3 * time.Second
	if testing.Short() {
		least = 500 * time.Millisecond
	}
	rnd := seed.Rand(t)
	path := mirrorPath(t)
	writer := startWriter(t, path)
	defer func() { stopChild(writer) }()

	start := time.Now()
	var other uint64 // reads of the other process
	remote := child("torn-reader", path)
	out, err := remote.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Start(); err != nil {
		t.Fatal(err)
	}
	defer stopChild(remote)
	go func() {
		for sc := bufio.NewScanner(out); sc.Scan(); {
			if n, err := strconv.ParseUint(sc.Text(), 10, 64); err == nil {
				atomic.StoreUint64(&other, n)
			} else {
				t.Errorf("reader in another process: %s", sc.Text())
			}
		}
	}()

	var done atomic.Bool
	var wg sync.WaitGroup
	readers := make([]*tornReader, 2)
	for i := range readers {
		x := &tornReader{r: mustOpen(t, path)}
		readers[i] = x
		local := rand.New(rand.NewPCG(rnd.Uint64(), 0))
		wg.Go(func() {
			if err := x.run(local, done.Load); err != nil {
				t.Error(err)
			}
		})
	}
	kills := 0
	for !t.Failed() {
		time.Sleep(time.Duration(20+rnd.IntN(60)) * time.Millisecond)
		elsewhere := atomic.LoadUint64(&other)
		sum := elsewhere
		for _, x := range readers {
			sum += x.reads.Load()
		}
		if sum >= target && time.Since(start) > least && kills > 2 && elsewhere > 0 && met(readers) {
			break
		}
		if time.Since(start) > 2*time.Minute+500*time.Duration(target) { // 500 ns each is slow on a busy machine, too
			t.Errorf("the readers hardly met the writer, the one in another process read %d times", elsewhere)
			break
		}
		stopChild(writer)
		kills++
		if ps, err := Check(path); err != nil || len(ps) > 0 {
			t.Errorf("after kill %d: %v %v", kills, ps, err)
		}
		writer = startWriter(t, path)
	}
	done.Store(true)
	wg.Wait()
	t.Logf("%d kills in %v; another process: %d reads", kills, time.Since(start).Round(time.Millisecond), atomic.LoadUint64(&other))
	for _, x := range readers {
		t.Log(x)
	}
	stopChild(writer)
	checkFile(t, path)
}

// The same in one process, on the heap, where the race detector sees it.
func TestReadsInOneProcessAreNeverTorn(t *testing.T) {
	w, r := heapMirror(t, tornCounters, 2, 256, tornOptions)
	var done atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := tornWriter(w, done.Load); err != nil {
			t.Error(err)
		}
	})
	for r.Status().State != Run {
		time.Sleep(time.Millisecond)
	}
	rnd := seed.Rand(t)
	start := time.Now()
	readers := []*tornReader{{r: r}, {r: r}}
	for _, x := range readers {
		local := rand.New(rand.NewPCG(rnd.Uint64(), 0))
		wg.Go(func() {
			if err := x.run(local, done.Load); err != nil {
				t.Error(err)
			}
		})
	}
	for !t.Failed() && (time.Since(start) < time.Second || !met(readers)) && time.Since(start) < 2*time.Minute {
		time.Sleep(10 * time.Millisecond)
	}
	done.Store(true)
	wg.Wait()
	for _, x := range readers {
		t.Log(x)
	}
	if !met(readers) {
		t.Error("the readers hardly met the writer")
	}
}

// startWriter starts a writer and waits until it publishes.
func startWriter(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	before := uint64(0)
	if r, err := OpenReader(path, ReaderOptions{}); err == nil {
		before = r.Status().Generation
	}
	cmd := child("torn-writer", path)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if r, err := OpenReader(path, ReaderOptions{}); err == nil {
			if s := r.Status(); s.Generation != before && s.State == Run {
				return cmd
			}
		}
		if time.Now().After(deadline) {
			stopChild(cmd)
			t.Fatal("the writer did not start")
		}
	}
}

func stopChild(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func init() {
	children["torn-writer"] = func() {
		w, err := Create(with(tornOptions, os.Getenv("FLOWTALLY_SHM_PATH")))
		if err == nil {
			err = tornWriter(w, func() bool { return false })
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "writer:", err)
			os.Exit(1)
		}
	}
	children["torn-reader"] = func() {
		r, err := OpenReader(os.Getenv("FLOWTALLY_SHM_PATH"), ReaderOptions{})
		if err == nil {
			x := &tornReader{r: r}
			rounds := 0
			err = x.run(rand.New(rand.NewPCG(1, 1)), func() bool {
				if rounds++; rounds%64 == 0 {
					fmt.Println(x.reads.Load())
				}
				return false
			})
		}
		fmt.Println(err)
	}
}
