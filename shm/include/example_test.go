package include

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/shm"
)

// Names of the variables that make the test binary a writer.
const (
	writerPath     = "FLOWTALLY_TEST_WRITER"
	writerCounters = "FLOWTALLY_TEST_WRITER_COUNTERS"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(writerPath); path != "" {
		writeForEver(path)
	}
	os.Exit(m.Run())
}

// writeForEver publishes the counter "web" until the process is killed.
func writeForEver(path string) {
	counters, _ := strconv.Atoi(os.Getenv(writerCounters))
	w, err := shm.Create(shm.Options{Path: path, Counters: counters, HeartbeatPeriod: 50 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	first := uint64(1)
	if entries := w.Entries(); len(entries) == 0 {
		if _, err := w.Add(shm.Entry{Name: "web"}); err != nil {
			panic(err)
		}
	} else if last, err := w.Last(entries[0].Handle); err == nil {
		first = last.Packets + 1
	}
	for n := first; ; n++ {
		var b shm.Block
		b[0] = shm.Value{Packets: n, Bytes: 1500 * n, SampledAt: shm.Now()}
		w.BeginCycle()
		w.PublishBlock(0, &b)
		w.EndCycle(shm.Now())
		time.Sleep(time.Millisecond)
	}
}

func startWriter(t *testing.T, path string, counters int) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), writerPath+"="+path, writerCounters+"="+strconv.Itoa(counters))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

// webPackets returns the packets of web in the mirror.
func webPackets(t *testing.T, path string) int {
	t.Helper()
	r, err := shm.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	h, err := r.Lookup("web")
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.Counter(h)
	if err != nil {
		t.Fatal(err)
	}
	v, err := c.Load()
	if err != nil {
		t.Fatal(err)
	}
	return int(v.Packets)
}

// example builds a program of examples as its README says.
func example(t *testing.T, name string) (bin string) {
	t.Helper()
	need.Tool(t, "cc")
	bin = filepath.Join(t.TempDir(), name)
	run(t, "cc", "-std=c11", "-O2", "-I.", "-o", bin, filepath.Join("../../examples", name, name+".c"))
	return bin
}

// talk is a running program and the lines that it prints.
type talk struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
}

// listen starts a program that ends with the test.
func listen(t *testing.T, bin string, args ...string) *talk {
	t.Helper()
	p := &talk{t: t, cmd: exec.Command(bin, args...), lines: make(chan string, 100)}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	})
	return p
}

// next is the next line, or false at the end.
func (p *talk) next(wanted string) (string, bool) {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		return line, ok
	case <-time.After(20 * time.Second):
		p.t.Fatalf("%s did not say %q", p.cmd, wanted)
		return "", false
	}
}

// await skips the lines before one that begins with prefix.
func (p *talk) await(prefix string) string {
	p.t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		line, ok := p.next(prefix)
		if !ok {
			p.t.Fatalf("%s ended before it said %q", p.cmd, prefix)
		}
		if strings.HasPrefix(line, prefix) {
			return line
		}
	}
	p.t.Fatalf("%s did not say %q", p.cmd, prefix)
	return ""
}

// When its writer is killed, the example says so and keeps running. It continues with the
// next writer, and follows the name to a file made anew.
func TestExampleOutlivesItsWriter(t *testing.T) {
	path, w := newMirror(t, shm.Options{Counters: 64})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	writer := startWriter(t, path, 64)

	reader := listen(t, example(t, "c-reader"), "-i", "0.02", path, "web", "nobody")
	await := reader.await
	packets := func() int {
		t.Helper()
		for {
			number, _, _ := strings.Cut(strings.TrimPrefix(await("web: "), "web: "), " ")
			if n, err := strconv.Atoi(number); err == nil {
				return n
			}
		}
	}

	await("writer: run, heartbeat ")
	await("nobody: counter: no live counter has that name or index; flowtally get lists all counters")
	running := packets()
	if err := writer.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	writer.Wait()
	dead := webPackets(t, path)
	if dead < running {
		t.Errorf("%d packets while the writer ran, %d after it was killed", running, dead)
	}
	for end := time.Now().Add(20 * time.Second); packets() != dead; { // lines of before
		if time.Now().After(end) {
			t.Fatalf("the example does not show the last %d packets", dead)
		}
	}
	await("writer: gone, no heartbeat for ")
	if n := packets(); n != dead {
		t.Errorf("%d packets after the last %d", n, dead)
	}
	await("writer: gone, no heartbeat for ")

	writer = startWriter(t, path, 64) // takes the same file over
	await("writer: run, heartbeat ")
	if n := packets(); n < dead {
		t.Errorf("%d packets after a restart, %d before", n, dead)
	}
	writer.Process.Kill()
	writer.Wait()
	dead = packets()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	startWriter(t, path, 64) // makes another file, which the dead one could not mark
	await("mirror: following to the file that took its name")
	await("writer: run, heartbeat ")
	if n := packets(); n >= dead {
		t.Errorf("%d packets in a file made anew, %d in the old one", n, dead)
	}
}
