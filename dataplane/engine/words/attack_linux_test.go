package words_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/published"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/shm/shmtest"
	shmwords "github.com/flowtally/flowtally/shm/words"
)

// Words are reserved and released 10,000 times, and now and then a program takes them. No descriptor may leak, and another
// counter must not change.
func TestManyReservationsLeaveNoDescriptor(t *testing.T) {
	n := 10_000
	if testing.Short() {
		n = 1000
	}
	path := mirror(t)
	svc, err := engine.New(t.Context(), dataplane.Config{
		Instance: "words", Words: []string{"beside"}, Mirror: dataplane.MirrorConfig{Path: path, History: -1},
		Poll: dataplane.PollConfig{Period: time.Millisecond, IdlePeriod: time.Millisecond},
	}, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = svc.Close() })
	beside := take(t, path, "beside")
	beside.Add(5, 0)
	before := openFiles(t)
	for i := range n {
		name := fmt.Sprint("w", i%7)
		if _, err := svc.ReserveWords(t.Context(), name); err != nil {
			t.Fatalf("reservation %d: %v", i, err)
		}
		if i%500 == 0 {
			w, err := shmwords.Take(path, name, shmwords.Options{})
			if err != nil {
				t.Fatalf("reservation %d: %v", i, err)
			}
			w.Add(1, 0)
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := svc.ReleaseWords(t.Context(), name); err != nil {
			t.Fatalf("reservation %d: %v", i, err)
		}
	}
	lab.Eventually(t, "no descriptor is left", func() bool { return openFiles(t) <= before })
	r := shmtest.MustOpen(t, path)
	lab.Eventually(t, "the mirror has the words beside", func() bool { return published.Completions(t, r, "beside") == 5 })
	if all, err := r.Entries(); err != nil || len(all) != 1 {
		t.Errorf("%d entries are left: %v", len(all), err)
	}
	t.Logf("%d reservations, %d descriptors before and after", n, before)
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// Reserve either refuses a name, or a program can take its words.
func TestOddNamesAreRefusedOrCanBeTaken(t *testing.T) {
	path := mirror(t)
	svc := instance(t, path, "first")
	for _, name := range []string{
		"a", "A.b-c_d:e", "..", "../x", "a/b", "%s%n", "-v", "a b", "a\tb", "a\nb", "a\x00b", "\x1b[31m", "ünïcödé", "\xff\xfe",
		"'; rm", "app.words", strings.Repeat("n", 63), strings.Repeat("n", 64), strings.Repeat("ü", 32),
	} {
		_, err := svc.ReserveWords(t.Context(), name)
		if err != nil {
			if !errors.Is(err, dataplane.ErrInvalid) {
				t.Errorf("reserving %q: %v", name, err)
			}
			if w, err := shmwords.Take(path, name, shmwords.Options{}); err == nil {
				t.Errorf("the words of %q, which was refused, were taken: %v", name, w)
			}
			continue
		}
		w, err := shmwords.Take(path, name, shmwords.Options{})
		if err != nil {
			t.Errorf("taking %q: %v", name, err)
			continue
		}
		w.Add(3, 0)
		r := shmtest.MustOpen(t, path)
		lab.Eventually(t, fmt.Sprintf("the mirror has the words of %q", name), func() bool { return published.Completions(t, r, name) == 3 })
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		t.Logf("%q is a name", name)
	}
}

// Two instances with mirrors in one directory may have words of one name, and do not share them.
func TestTwoInstancesHaveTheirOwnWords(t *testing.T) {
	dir := t.TempDir()
	var readers [2]*shm.Reader
	for i := range readers {
		path := filepath.Join(dir, fmt.Sprintf("i%d.mirror", i))
		instance(t, path, "app")
		take(t, path, "app").Add(uint64(i+1), 0)
		readers[i] = shmtest.MustOpen(t, path)
	}
	for i, r := range readers {
		lab.Eventually(t, fmt.Sprintf("the mirror of instance %d", i), func() bool { return published.Completions(t, r, "app") == uint64(i+1) })
	}
}

// An instance restarts while a program keeps counting in its words. The total continues from the published value. The
// program still has its memory, but changes no counter until it takes words again.
func TestRestartUnderAProgramKeepsThePublishedTotal(t *testing.T) {
	path := mirror(t)
	svc := instance(t, path, "app")
	w := take(t, path, "app")
	var total uint64
	for round := range 3 {
		var stop sync.WaitGroup
		end := make(chan struct{})
		stop.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
					w.Add(1, 0)
				}
			}
		})
		r := shmtest.MustOpen(t, path)
		lab.Eventually(t, "the program counts", func() bool { return published.Completions(t, r, "app") > total })
		if err := svc.Close(); err != nil {
			t.Fatal(err)
		}
		lab.Eventually(t, "the program learns of the end", func() bool { return !w.Served() })
		total = published.Completions(t, r, "app")
		svc = instance(t, path, "app")
		again := shmtest.MustOpen(t, path)
		entries, err := again.Entries()
		if err != nil || len(entries) != 1 || entries[0].Continuity.Discontinuities != uint64(round+1) {
			t.Errorf("start %d: %+v (%v), want %d discontinuities", round+1, entries, err, round+1)
		}
		next := take(t, path, "app") // its predecessor counts on
		next.Add(2, 0)
		total += 2
		lab.Eventually(t, "the total goes on", func() bool { return published.Completions(t, again, "app") == total })
		d := device(t, again, "app")
		wantWords(t, &d, total, 0)
		close(end)
		stop.Wait()
		if err := w.Close(); err != nil {
			t.Errorf("giving back words of an instance that ended: %v", err)
		}
		w = next
	}
}

// The mirror grows while a program writes its words. Each operation is counted once, and a reader need not attach again.
func TestGrowthUnderAProgramCountsEachOperationOnce(t *testing.T) {
	path := mirror(t)
	svc, err := engine.New(t.Context(), dataplane.Config{
		Instance: "words", Words: []string{"app"}, Backend: flow.Sim, Mirror: dataplane.MirrorConfig{Path: path, History: -1},
		Poll: dataplane.PollConfig{Period: time.Millisecond, IdlePeriod: time.Millisecond},
	}, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = svc.Close() })
	w := take(t, path, "app")
	r := shmtest.MustOpen(t, path)
	d := device(t, r, "app")
	var writing sync.WaitGroup
	end := make(chan struct{})
	var written uint64
	writing.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
				w.Add(1, 0)
				written++
			}
		}
	})
	for n := 0; r.Status().Counters <= shm.SegmentLen; n++ {
		flows := make([]flow.Flow, 1024)
		for i := range flows {
			flows[i] = flow.Flow{Name: fmt.Sprintf("f%d-%d", n, i)}
		}
		if _, err := svc.AddFlows(t.Context(), flows...); err != nil {
			t.Fatal(err)
		}
	}
	close(end)
	writing.Wait()
	wantWords(t, &d, written, 0)
	lab.Eventually(t, "the mirror has the total", func() bool { return published.Completions(t, r, "app") == written })
	t.Logf("%d additions; the mirror holds %d counters", written, r.Status().Counters)
}
