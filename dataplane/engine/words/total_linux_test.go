package words_test

import (
	"math"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/published"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/shm/shmtest"
	shmwords "github.com/flowtally/flowtally/shm/words"
)

// unpolled is an instance with the words "app" whose poller rests: the test reads the words as the poller would.
type unpolled struct {
	*engine.Engine
	t    *testing.T
	path string
	r    *shm.Reader
}

func restingInstance(t *testing.T) *unpolled {
	t.Helper()
	path := mirror(t)
	svc, err := engine.New(t.Context(), dataplane.Config{
		Instance: "words", Words: []string{"app"}, Mirror: dataplane.MirrorConfig{Path: path, Counters: 64, History: -1},
		Poll: dataplane.PollConfig{Period: time.Hour, IdlePeriod: time.Hour},
	}, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = svc.Close() })
	return &unpolled{svc, t, path, shmtest.MustOpen(t, path)}
}

// poll returns both totals as the poller reads them.
func (u *unpolled) poll() backend.Pair {
	u.t.Helper()
	var got [1]backend.Pair
	if err := u.Set.Read([]uint32{0}, got[:]); err != nil {
		u.t.Fatal(err)
	}
	return got[0]
}

func (u *unpolled) want(comp, errs uint64) {
	u.t.Helper()
	if got := u.poll(); got != (backend.Pair{Packets: comp, Bytes: errs}) {
		u.t.Errorf("the poller reads %+v, want %d and %d", got, comp, errs)
	}
}

func (u *unpolled) discontinuities() uint64 {
	u.t.Helper()
	all, err := u.r.Entries()
	if err != nil || len(all) != 1 {
		u.t.Fatalf("%+v: %v", all, err)
	}
	return all[0].Continuity.Discontinuities
}

// takeRaw takes the words "app" and returns the connection and the descriptor of their file.
func (u *unpolled) takeRaw(limit uint64) (*client, int) {
	u.t.Helper()
	c := connect(u.t, u.path)
	errno, _, fd := c.send(shmwords.Request{Kind: shmwords.TakeWords, Name: "app", Limit: limit}.Message())
	if errno != 0 {
		u.t.Fatal(errno)
	}
	return c, fd
}

func put(t *testing.T, fd int, which int64, v uint64) {
	t.Helper()
	b := word(v)
	if _, err := unix.Pwrite(fd, b[:], 8*which); err != nil {
		t.Fatal(err)
	}
}

// A program writes nonsense into its words, counts on, and returns them. Those operations are lost, so the counter must declare
// a discontinuity.
func TestSpoiltWordsAreGivenBackWithADiscontinuity(t *testing.T) {
	for name, spoilt := range map[string]uint64{"smaller": 5, "above the limit": 1<<24 + 1} {
		t.Run(name, func(t *testing.T) {
			u := restingInstance(t)
			events, err := u.Events(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			c, fd := u.takeRaw(1 << 24)
			put(t, fd, 0, 1000)
			u.want(1000, 0)
			put(t, fd, 0, spoilt)
			u.want(1000, 0)
			put(t, fd, 0, spoilt+900)
			if errno, _, _ := c.send(shmwords.Request{Kind: shmwords.ReturnWords}.Message()); errno != unix.ECONNRESET {
				t.Fatalf("giving back: %v", errno)
			}
			// The instance may have continued the total before the words were given back: with a discontinuity too.
			if got := u.discontinuities(); got != 1 {
				t.Fatalf("%d discontinuities, want 1", got)
			}
			if got := u.poll().Packets; got < 1000 || got > 1900 {
				t.Errorf("%d completions, want 1000 to 1900", got)
			}
			lab.Eventually(t, "an event says that operations may have ended uncounted", func() bool {
				select {
				case e := <-events:
					return e.Object == "app" && e.Uncounted.Unknown
				default:
					return false
				}
			})
		})
	}
}

// When words are returned, the Set reads their last total and then stores it. A poll in between must not publish more than that
// total.
func TestNoPollPublishesMoreThanTheReturnedTotal(t *testing.T) {
	u := restingInstance(t)
	w := take(t, u.path, "app")
	w.Add(100, 10)
	u.want(100, 10)
	var seen backend.Pair
	u.Set.OnTotalRead(func(polls bool) {
		w.Add(0, 5) // a device of a program that gave its words back too early
		if polls {
			seen = u.poll()
		}
	})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := u.poll(); got.Packets < seen.Packets || got.Bytes < seen.Bytes {
		t.Errorf("the total is %+v after %+v", got, seen)
	}
	w = take(t, u.path, "app")
	w.Add(7, 1)
	u.want(107, 11)
	if got := u.discontinuities(); got != 0 {
		t.Errorf("%d discontinuities, want 0", got)
	}
}

// A word above its limit stops the counter until the next Keep. Then it continues from its total, with a discontinuity, and
// once more when the word is within its limit again.
func TestWordsAboveTheirLimitContinueWithADiscontinuity(t *testing.T) {
	path := mirror(t)
	svc := instance(t, path, "app")
	r := shmtest.MustOpen(t, path)
	c := connect(t, path)
	errno, _, fd := c.send(shmwords.Request{Kind: shmwords.TakeWords, Name: "app", Limit: 1 << 24}.Message())
	if errno != 0 {
		t.Fatal(errno)
	}
	shows := func(n uint64) {
		t.Helper()
		lab.Eventually(t, "the counter goes on", func() bool { return published.Completions(t, r, "app") == n })
	}
	discontinuity := func(n uint64) {
		t.Helper()
		lab.Eventually(t, "a discontinuity", func() bool {
			all, err := r.Entries()
			return err == nil && len(all) == 1 && all[0].Continuity.Discontinuities == n
		})
	}
	put(t, fd, 0, 1000)
	shows(1000)
	put(t, fd, 0, 20_000_000)
	discontinuity(1)
	shows(1000)
	put(t, fd, 0, 20_000_003)
	shows(1003)
	d := device(t, r, "app")
	wantWords(t, &d, 1003, 0)
	put(t, fd, 0, 7)
	discontinuity(2)
	put(t, fd, 0, 9)
	shows(1005)
	if s := published.Words(t, svc, "app"); s != dataplane.WordsTaken {
		t.Errorf("the words are %s", s)
	}
}

// After the limit Add wraps a word around to 0, as a device does, and the total continues.
func TestAddWrapsAtTheLimitAndTheTotalContinues(t *testing.T) {
	const limit = 1<<24 + 99
	for _, tt := range []struct{ limit, first, add uint64 }{
		{limit, 0, 8_000_000},
		{limit, limit, 1},
		{math.MaxUint64, 0, 8_000_000},
	} {
		u := restingInstance(t)
		w, err := shmwords.Take(u.path, "app", shmwords.Options{Limit: tt.limit})
		if err != nil {
			t.Fatal(err)
		}
		var comp, errs uint64
		add := func(c, e uint64) {
			w.Add(c, e)
			comp, errs = comp+c, errs+e
			u.want(comp, errs)
		}
		for left := tt.first; left > 0; { // less than half of the range between two polls
			n := min(left, limit/3)
			add(n, 0)
			left -= n
		}
		for range 9 {
			add(tt.add, tt.add/2)
		}
		if c, e := w.Load(); tt.limit == limit && (c != comp%(limit+1) || e != errs%(limit+1)) {
			t.Errorf("%+v: the words are %d and %d after %d and %d", tt, c, e, comp, errs)
		}
		if got := u.discontinuities(); got != 0 {
			t.Errorf("%+v: %d discontinuities, want 0", tt, got)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		u.want(comp, errs)
	}
}
