package shm

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/times"
)

// Another user attacks waiters: writes to the page, cuts it, punches holes, adds names, wakes and requeues
// its sleepers. A user outside the group can do nothing. A member of the group cannot change the page. It
// can steal wakes, but then waiters still look by themselves in time.
func TestHostileUsersDelayNoWaiterForLong(t *testing.T) {
	need.Root(t)
	need.Tool(t, "cc")
	const group, user = 54321, 54322
	tries := times.Of(t, "FLOWTALLY_HOSTILE_TRIES", 200_000, 20000)
	bin := filepath.Join("/dev/shm", fmt.Sprintf("flowtally-test-hostile-%d", os.Getpid())) // where every user may enter
	t.Cleanup(func() { os.Remove(bin) })
	if out, err := exec.CommandContext(t.Context(), "cc", "-std=c11", "-O2", "-pthread", "-o", bin, "../internal/bench/shmrows/src/hostile.c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, tt := range []struct {
		name   string
		gid    int
		member bool
	}{{"outside", user, false}, {"member", group, true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // each of the two programs runs on one CPU
			w, r, h := waitMirror(t, Options{WaitGroup: group})
			page := waitPath(w.path)
			if err := os.Chmod(filepath.Dir(w.path), 0o755); err != nil { // made by MkdirTemp
				t.Fatal(err)
			}
			var was unix.Stat_t
			if err := unix.Stat(page, &was); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			cmd := exec.CommandContext(t.Context(), bin, w.path, page, strconv.Itoa(user), strconv.Itoa(tt.gid), "/dev/shm", strconv.Itoa(tries))
			cmd.Stdout, cmd.Stderr = &out, &out
			var wakes, woken, missed, waits atomic.Uint64
			var stop atomic.Bool
			ended := make([]atomic.Int64, 1<<22) // by value: when the cycle that showed it had ended
			w.waker.hook = func(string) { wakes.Add(1) }
			waiter := make(chan struct{})
			go func() {
				defer close(waiter)
				for last := uint64(1); !stop.Load(); waits.Add(1) {
					latest := int64(0)
					s := watched(r, func(until int64, result syscall.Errno) {
						switch result {
						case 0:
							woken.Add(1)
						case syscall.ETIMEDOUT:
							latest = until
						}
					})
					v, err := s.await(t.Context(), h, r.reaches(h, last+1))
					if err != nil || v != patterned(v.Packets) {
						t.Errorf("waiting for %d: %v, %v", last+1, v, err)
						return
					}
					if at := ended[last+1].Load(); at != 0 && at < latest {
						missed.Add(1)
					}
					last = v.Packets
				}
			}()
			n := uint64(1)
			cycle := func() {
				n++
				publishOne(w, h, patterned(n))
				ended[n].Store(Now())
				time.Sleep(100 * time.Microsecond)
			}
			for waits.Load() == 0 && !t.Failed() { // the other program may be quicker than the scheduler
				cycle()
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			over := make(chan error, 1)
			go func() { over <- cmd.Wait() }()
			var err error
			for running := true; running && n < uint64(len(ended))-1000; {
				select {
				case err = <-over:
					running = false
				default:
					cycle()
				}
			}
			stop.Store(true)
			cycle() // for the wait that has begun
			<-waiter

			text := strings.TrimSpace(out.String())
			t.Logf("%s; %d waits, %d cycles, %d wakes, %d sleeps woken, %d slept out", text, waits.Load(), n, wakes.Load(), woken.Load(), missed.Load())
			var got struct{ tries, opened, written, cut, punched, linked, woken, moved int }
			if k, _ := fmt.Sscanf(text, "tries %d opened %d written %d cut %d punched %d linked %d woken %d moved %d", &got.tries, &got.opened,
				&got.written, &got.cut, &got.punched, &got.linked, &got.woken, &got.moved); k != 8 || err != nil || got.tries != tries {
				t.Fatalf("%v: %s", err, text)
			}
			if got.written+got.cut+got.punched > 0 {
				t.Error("the page was changed")
			}
			if (got.opened == 1) != tt.member {
				t.Errorf("opened: %d", got.opened)
			}
			if !tt.member && (got.woken+got.moved > 0 || missed.Load() > 0 || woken.Load() > wakes.Load()) {
				t.Error("a user outside the group reached a waiter")
			}
			var is unix.Stat_t
			if err := unix.Stat(page, &is); err != nil || is.Ino != was.Ino || is.Size != was.Size || is.Blocks != was.Blocks || is.Mode != was.Mode || is.Nlink != 1 {
				t.Errorf("the page was %+v, is %+v, %v", was, is, err)
			}
			if err := r.Wakeable(); err != nil {
				t.Error(err)
			}
			wakesOne(t, w, r, h)
		})
	}
}
