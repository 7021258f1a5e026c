package include

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/shm"
)

// want holds the next lines against those that are to come.
func (p *talk) want(lines ...string) {
	p.t.Helper()
	for _, want := range lines {
		if line, ok := p.next(want); line != want || !ok {
			p.t.Fatalf("%s said %q, want %q", p.cmd, line, want)
		}
	}
}

// The waiting example prints the count once it is reached and never before, even if another file gets
// the mirror's name meanwhile, and ends.
func TestWaitExamplePrintsNoCountTooEarly(t *testing.T) {
	o := shm.Options{Counters: 64, LatencyCounters: -1, HeartbeatPeriod: patience}
	path, w := newMirror(t, o)
	h := add(t, w, shm.Entry{Name: "web", Kind: "flow"})
	show(w, h, shm.Value{})
	p := listen(t, example(t, "c-wait"), "-n", "4", path, "web", "10")
	asleep(t, p.cmd.Process.Pid) // never sampled: not even 0 is reached
	show(w, h, value(0))
	p.want("web: 0, waiting for 10")
	show(w, h, value(9))
	show(w, h, value(12))
	p.want("web: 12, waiting for 22")
	show(w, h, value(22))
	p.want("web: 22, waiting for 32")
	w = anew(t, w, o)
	show(w, add(t, w, shm.Entry{Name: "other"}), value(1)) // the file is there before the counter
	h = add(t, w, shm.Entry{Name: "web", Kind: "flow"})
	p.want("mirror: following to the file that took its name")
	show(w, h, value(31))
	show(w, h, value(32))
	p.want("web: 32, waiting for 42")
	show(w, h, value(99))
	p.want("web: 99")
	if line, ok := p.next(""); ok {
		t.Errorf("more: %q", line)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// The waiting example says why it ends before the count is reached.
func TestWaitExampleSaysWhyItGivesUp(t *testing.T) {
	bin := example(t, "c-wait")
	const at = "web: 5, waiting for 15\n"
	for _, tt := range []struct {
		name string
		kind string
		args string
		then func(t *testing.T, w *shm.Writer, h shm.Handle)
		want string
	}{
		{name: "no time", args: "-t 0.01 MIRROR web 10", want: at + "web: counter: not reached in time\n"},
		{name: "no such counter", args: "MIRROR wob 10", want: "wob: counter: no live counter has that name or index; flowtally get lists all counters\n"},
		{name: "removed", args: "MIRROR web 10", want: at + "web: counter: removed; look its name up again\n", then: func(t *testing.T, w *shm.Writer, h shm.Handle) {
			if err := w.Remove(h); err != nil {
				t.Error(err)
			}
			show(w, h, shm.Value{}) // of no counter: a cycle, and with it the wake
		}},
		{name: "an error", kind: "completion", args: "MIRROR web 10", want: at + "web: counter: operations completed in error\n",
			then: shows(shm.Value{Packets: 14, Bytes: 7501, SampledAt: 1})},
		{name: "the writer ends", args: "MIRROR web 10", then: func(t *testing.T, w *shm.Writer, h shm.Handle) {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}, want: at + "web: mirror: its writer ended; open it again\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path, w := newMirror(t, shm.Options{Counters: 64, LatencyCounters: -1, HeartbeatPeriod: patience})
			h := add(t, w, shm.Entry{Name: "web", Kind: tt.kind})
			show(w, h, value(5))
			p := listen(t, bin, strings.Fields(strings.ReplaceAll(tt.args, "MIRROR", path))...)
			if tt.then != nil {
				asleep(t, p.cmd.Process.Pid)
				tt.then(t, w, h)
			}
			var out strings.Builder
			for line, ok := p.next(tt.want); ok; line, ok = p.next(tt.want) {
				out.WriteString(line + "\n")
			}
			if diff := cmp.Diff(tt.want, out.String()); diff != "" {
				t.Errorf("want -, said +:\n%s", diff)
			}
			if err := p.cmd.Wait(); err == nil {
				t.Error("it ended with 0")
			}
		})
	}
}

// If the writer does not wake the waiting example, it says so, and waits by looking.
func TestWaitExampleWaitsWithoutAWake(t *testing.T) {
	path, w := newMirror(t, shm.Options{Counters: 64, HeartbeatPeriod: patience})
	show(w, add(t, w, shm.Entry{Name: "web"}), value(5))
	if err := os.Remove(strings.TrimSuffix(path, ".mirror") + ".wait"); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), example(t, "c-wait"), "-n", "0", path, "web", "10").CombinedOutput()
	want := path + ": looking once per poll cycle: mirror: its writer wakes no waiters; they look once per cycle\nweb: 5\n"
	if err != nil || string(out) != want {
		t.Errorf("%v: %q, want %q", err, out, want)
	}
}
