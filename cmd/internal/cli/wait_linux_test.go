package cli

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/shm"
)

// The mirror grows while the wait sleeps, and a count after that ends the wait.
func TestWaitSurvivesAGrowingMirror(t *testing.T) {
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
			for i := range shm.SegmentLen {
				if _, err := w.w.Add(shm.Entry{Name: fmt.Sprint("more-", i)}); err != nil {
					t.Fatal(err)
				}
			}
			grown = true
		}
		if n > 5 {
			w.count()
		}
		w.publish(false)
	}
}

// The file says that it was replaced, but no writer creates the new one.
func TestWaitEndsOnAMirrorWithoutSuccessor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m", "x.mirror")
	w, err := shm.Create(shm.Options{Path: path, Counters: 64, HeartbeatPeriod: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.Add(shm.Entry{Name: "web", Kind: "flow"}); err != nil {
		t.Fatal(err)
	}
	if err := w.GiveUp(0); err != nil {
		t.Fatal(err)
	}
	code, out, talk := run(t, "wait", "web", "--mirror", path, "--at-least", "20", "--timeout", "10m")
	if code != exitFailed || out != "" || !strings.Contains(talk, "was replaced") {
		t.Errorf("wait ended with %d\n%s%s", code, out, talk)
	}
}
