package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flowtally/flowtally/shm"
)

// readerMain is a process that has only the mirror's path and some names: it prints the output of
// examples/c-reader, from Go.
func readerMain(path string, names []string) int {
	r, err := shm.OpenReader(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	counters := make([]shm.HandleCounter, len(names))
	for i, name := range names {
		h, err := r.Lookup(name)
		if err == nil {
			counters[i], err = r.Counter(h)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	for {
		for i, name := range names {
			v, err := counters[i].Load()
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			fmt.Printf("%s: %d packets, %d bytes, %.3f s old\n", name, v.Packets, v.Bytes, v.Age().Seconds())
		}
		s := r.Status()
		word := "gone"
		if s.Alive {
			word = s.State.String()
		}
		fmt.Printf("writer: %s, heartbeat %.3f s ago\n", word, s.Age.Seconds())
		time.Sleep(50 * time.Millisecond)
	}
}

// onlooker is a reader process whose last words are kept.
type onlooker struct {
	name string
	cmd  *exec.Cmd

	mu     sync.Mutex
	counts map[string][2]uint64
	writer string
	lines  int
	wrong  []string // lines that make no sense
	ended  bool
}

// watch starts a reader process that ends with the test.
func watch(t *testing.T, name string, cmd *exec.Cmd) *onlooker {
	t.Helper()
	o := &onlooker{name: name, cmd: cmd, counts: map[string][2]uint64{}}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		for s := bufio.NewScanner(stdout); s.Scan(); {
			o.line(s.Text())
		}
		o.mu.Lock()
		o.ended = true
		o.mu.Unlock()
	})
	t.Cleanup(func() {
		cmd.Process.Kill()
		done.Wait()
		cmd.Wait()
	})
	return o
}

// line takes one line in: a counter only ever grows.
func (o *onlooker) line(s string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lines++
	name, rest, _ := strings.Cut(s, ": ")
	if name == "writer" {
		o.writer, _, _ = strings.Cut(rest, ",")
		return
	}
	var packets, bytes uint64
	if _, err := fmt.Sscanf(rest, "%d packets, %d bytes", &packets, &bytes); err != nil {
		o.wrong = append(o.wrong, s)
		return
	}
	if before := o.counts[name]; packets < before[0] || bytes < before[1] {
		o.wrong = append(o.wrong, fmt.Sprintf("%s after %v", s, before))
	}
	o.counts[name] = [2]uint64{packets, bytes}
}

// await waits until ok says yes of the reader, which must stay alive and sane.
func (o *onlooker) await(t *testing.T, what string, ok func(counts map[string][2]uint64, writer string) bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		o.mu.Lock()
		yes, state := ok(o.counts, o.writer), fmt.Sprint(o.counts, o.writer)
		ended, wrong := o.ended, o.wrong
		o.mu.Unlock()
		if ended || len(wrong) > 0 {
			t.Fatalf("%s: ended %t, wrong lines %q", o.name, ended, wrong)
		}
		if yes {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: waited for %s; last saw %s", o.name, what, state)
		}
	}
}

// cReader compiles the C example as its README says.
func cReader(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "c-reader")
	cmd := exec.Command("cc", "-std=c11", "-O2", "-I../../../shm/include", "-o", out, "../../../examples/c-reader/c-reader.c")
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("compiling the C example: %v\n%s", err, msg)
	}
	return out
}
