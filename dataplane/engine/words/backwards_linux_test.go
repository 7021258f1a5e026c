package words_test

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/published"
	"github.com/flowtally/flowtally/shm/shmtest"
	shmwords "github.com/flowtally/flowtally/shm/words"
)

// Whatever a program writes into its words, the total never falls, and never jumps by the range of a word. It stops, then
// continues with one discontinuity.
func TestWordsThatGoBackwardsNeverLowerTheTotal(t *testing.T) {
	for _, tt := range []struct {
		name  string
		limit uint64
		write [8]byte // over the word 1000
	}{
		{"smaller", math.MaxUint64, word(5)},
		{"the largest number", math.MaxUint64, word(math.MaxUint64)},
		{"zero", math.MaxUint64, word(0)},
		{"smaller, of a narrow device", 1 << 24, word(5)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := mirror(t)
			instance(t, path, "app")
			r := shmtest.MustOpen(t, path)
			evil := connect(t, path)
			errno, _, fd := evil.send(shmwords.Request{Kind: shmwords.TakeWords, Name: "app", Limit: tt.limit}.Message())
			if errno != 0 {
				t.Fatal(errno)
			}
			write := func(b [8]byte) {
				t.Helper()
				if _, err := unix.Pwrite(fd, b[:], 0); err != nil {
					t.Fatal(err)
				}
			}
			write(word(1000))
			lab.Eventually(t, "the mirror has the words", func() bool { return published.Completions(t, r, "app") == 1000 })
			write(tt.write)
			lab.Eventually(t, "a discontinuity", func() bool {
				if got := published.Completions(t, r, "app"); got != 1000 {
					t.Fatalf("the counter shows %d completions, want 1000", got)
				}
				all, err := r.Entries()
				return err == nil && len(all) == 1 && all[0].Continuity.Discontinuities == 1
			})
			d := device(t, r, "app")
			wantWords(t, &d, 1000, 0)
			next := binary.NativeEndian.Uint64(tt.write[:]) + 3
			write(word(next))
			lab.Eventually(t, "the total goes on", func() bool { return published.Completions(t, r, "app") == 1003 })
		})
	}
}

// The next program writes nonsense before a poll cycle has read its words. The total of the program before it must stay.
func TestSpoiltWordsKeepTheTotalBefore(t *testing.T) {
	path := mirror(t)
	svc, err := engine.New(t.Context(), dataplane.Config{
		Instance: "words", Words: []string{"app"}, Mirror: dataplane.MirrorConfig{Path: path, Counters: 64, History: -1},
		Poll: dataplane.PollConfig{Period: time.Hour, IdlePeriod: time.Hour}, // the test reads as the poller would
	}, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = svc.Close() })
	want := func(n uint64) {
		t.Helper()
		var got [1]backend.Pair
		if err := svc.Set.Read([]uint32{0}, got[:]); err != nil || got[0].Packets != n {
			t.Errorf("%d completions, %v, want %d", got[0].Packets, err, n)
		}
	}
	w := take(t, path, "app")
	w.Add(100, 0)
	want(100)
	w.Add(10, 0)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	want(110)
	evil := connect(t, path)
	errno, _, fd := evil.send(shmwords.Request{Kind: shmwords.TakeWords, Name: "app", Limit: shmwords.LeastLimit}.Message())
	if errno != 0 {
		t.Fatal(errno)
	}
	b := word(1 << 40)
	if _, err := unix.Pwrite(fd, b[:], 0); err != nil {
		t.Fatal(err)
	}
	want(110)
	if errno, _, _ := evil.send(shmwords.Request{Kind: shmwords.ReturnWords}.Message()); errno != unix.ECONNRESET {
		t.Errorf("giving back: %v", errno)
	}
	want(110)
}
