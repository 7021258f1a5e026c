package cli

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/shm"
)

// TestWaitFollowsGrowth: a larger mirror takes the name while a wait sleeps, and what is
// counted there ends it.
func TestWaitFollowsGrowth(t *testing.T) {
	path, w := webMirror(t)
	type ended struct {
		code      int
		out, talk string
	}
	done := make(chan ended, 1)
	go func() {
		code, out, talk := run(t, "wait", "web", "--mirror", path, "--at-least", "20", "--timeout", "30s")
		done <- ended{code, out, talk}
	}()
	grown := false
	for n := 0; ; n++ {
		select {
		case e := <-done:
			if e.code != exitOK || !strings.Contains(e.out, "web") || !grown {
				t.Errorf("wait ended with %d, the mirror grown: %t\n%s%s", e.code, grown, e.out, e.talk)
			}
			return
		case <-time.After(20 * time.Millisecond):
		}
		if n == 5 {
			if _, err := w.w.Grow(4096, 64); err != nil {
				t.Fatal(err)
			}
			grown = true
		}
		if n > 5 {
			w.count()
		}
		w.publish(false)
	}
}

// TestWaitEndsWithAWriterKilledWhileItGrew: the file says that another takes its name, and
// nobody is there to give it.
func TestWaitEndsWithAWriterKilledWhileItGrew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m", "x.mirror")
	w, err := shm.Create(shm.Options{Path: path, Counters: 64, HeartbeatPeriod: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.Add(shm.Entry{Name: "web", Kind: "flow"}); err != nil {
		t.Fatal(err)
	}
	w.SetState(shm.Superseded)
	code, out, talk := run(t, "wait", "web", "--mirror", path, "--at-least", "20", "--timeout", "10m")
	if code != exitFailed || out != "" || !strings.Contains(talk, "no living writer") {
		t.Errorf("wait ended with %d\n%s%s", code, out, talk)
	}
}
