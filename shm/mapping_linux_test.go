package shm

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// The mapping must live as long as a HandleCounter does, and no longer.
func TestMappingLivesAsLongAsItsCounters(t *testing.T) {
	path := mirrorPath(t)
	w := mustCreate(t, with(small, path))
	h := mustAdd(t, w, Entry{Name: "a"})
	mapped := func() bool {
		b, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if strings.Contains(line, path) && strings.Contains(line, "r--s") {
				return true
			}
		}
		return false
	}
	r, err := OpenReader(path, ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := mustCounter(t, r, h)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r = nil
	for range 3 {
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	if !mapped() {
		t.Fatal("unmapped under a counter")
	}
	if _, err := c.Load(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); mapped(); runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatal("still mapped")
		}
		time.Sleep(time.Millisecond)
	}
}
