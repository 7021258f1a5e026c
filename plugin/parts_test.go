package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// Whatever the order of pushes and reads: events arrive in order, each one
// either arrives or is counted as lost by the next that does, and of what is
// queued the oldest goes first.
func TestQueueModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		q := newQueue(ctx)
		var pushed, seen uint64 // seen counts the lost ones
		read := func() {
			ev, ok := <-q.out
			if !ok {
				t.Fatal("the stream ended")
			}
			seen += 1 + ev.Lost
			if want := fmt.Sprint(seen - 1); ev.Object != want {
				t.Fatalf("got event %s, want %s (lost %d)", ev.Object, want, ev.Lost)
			}
		}
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			for range rapid.IntRange(0, 2*queueLength).Draw(t, "pushes") {
				q.push(dataplane.Event{Object: fmt.Sprint(pushed)})
				pushed++
			}
			for range rapid.IntRange(0, 50).Draw(t, "reads") {
				if seen < pushed {
					read()
				}
			}
		}
		q.close()
		for seen < pushed {
			read()
		}
		if _, open := <-q.out; open {
			t.Fatal("the stream goes on after its close")
		}
	})
}

func TestQueueEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	q := newQueue(ctx)
	for range 10 {
		q.push(dataplane.Event{})
	}
	cancel()
	for range q.out { // ends, whatever is queued
	}
	q.push(dataplane.Event{})
	q.close()
	q.close()
}

func TestBackoff(t *testing.T) {
	b := backoff{min: 100 * time.Millisecond, max: 2 * time.Second}
	for i, want := range []time.Duration{100, 200, 400, 800, 1600, 2000, 2000, 2000} {
		want *= time.Millisecond
		if got := b.next(); got > want || got < want/2 {
			t.Errorf("pause %d is %v, want up to %v and at least half", i, got, want)
		}
	}
	b.lived(19 * time.Second) // less than ten pauses
	if got := b.next(); got < time.Second {
		t.Errorf("the pause after a short life is %v", got)
	}
	b.lived(20 * time.Second)
	if got := b.next(); got > 100*time.Millisecond {
		t.Errorf("the pause after a long life is %v", got)
	}
}

func TestTrust(t *testing.T) {
	need.Root(t) // to give files away
	mine := map[uint32]bool{0: true, 777: true}
	for _, test := range []struct {
		name            string
		dir, file       os.FileMode
		dirUID, fileUID int
		says            string // "": trusted
	}{
		{"root's", 0o755, 0o755, 0, 0, ""},
		{"of the owner of this program", 0o755, 0o755, 777, 777, ""},
		{"directory of a group", 0o775, 0o755, 0, 0, ""},
		{"in /tmp", 0o777 | os.ModeSticky, 0o755, 0, 0, ""},
		{"another's", 0o755, 0o755, 0, 1234, "belongs to user 1234"},
		{"directory of another", 0o755, 0o755, 1234, 0, "belongs to user 1234"},
		{"group-writable", 0o755, 0o775, 0, 0, "chmod go-w"},
		{"world-writable", 0o755, 0o757, 0, 0, "chmod go-w"},
		{"directory world-writable", 0o777, 0o755, 0, 0, "chmod go-w"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "d")
			file := filepath.Join(dir, "plugin")
			err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(file, nil, 0o700), os.Chmod(dir, test.dir), os.Chmod(file, test.file),
				os.Chown(dir, test.dirUID, -1), os.Chown(file, test.fileUID, -1))
			if err != nil {
				t.Fatal(err)
			}
			link := filepath.Join(t.TempDir(), "link") // it is the target that counts
			if err := os.Symlink(file, link); err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{file, link} {
				err := trustedBy(path, mine)
				switch {
				case test.says == "" && err != nil:
					t.Error(err)
				case test.says != "" && (!errors.Is(err, ErrUntrusted) || !strings.Contains(err.Error(), test.says)):
					t.Errorf("error is %v", err)
				}
			}
		})
	}
}

func TestByHand(t *testing.T) {
	var out bytes.Buffer
	byHand(&out, "")
	for _, s := range []string{"This binary is a plugin", "`flowtally run`"} {
		if !strings.Contains(out.String(), s) {
			t.Errorf("%q is not in %q", s, out.String())
		}
	}
	if code := Serve(ServeOptions{}); code != 1 {
		t.Errorf("a plugin without a host exits with %d", code)
	}
}
