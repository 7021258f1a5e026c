//go:build vm && linux

package engine

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
)

// dispatched is an instance beside the distribution's xdp-loader, with traffic.
type dispatched struct {
	*bench
	t *testing.T
	e *Engine
	x *xdp.Backend
	s *lab.Sender
}

func newDispatched(t *testing.T) *dispatched {
	t.Helper()
	d := &dispatched{bench: newBench(t, "auto", flow.Flow{Name: "a", Match: match(t, "udp dport 1001")}), t: t}
	d.load()
	d.e, d.x = d.startRetaking(t, 50*time.Millisecond)
	awaitMode(t, d.e, d.x, dataplane.ModeDispatcher)
	awaitCondition(t, d.e, "xdp-beside", d.wire.Near.Name, true)
	var err error
	if d.s, err = d.wire.Far.NewSender([]lab.Stream{{Frames: [][]byte{udpTo(1001, 60)}}}, lab.SenderOptions{Rate: 2000}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.s.Close() })
	return d
}

// loader runs xdp-loader on the near end.
func (d *dispatched) loader(command string, args ...string) (string, error) {
	d.t.Helper()
	var out []byte
	err := d.wire.Near.NS.Do(func() (err error) {
		out, err = exec.CommandContext(d.t.Context(), "xdp-loader", append([]string{command, d.wire.Near.Name}, args...)...).CombinedOutput()
		return err
	})
	if err != nil {
		err = fmt.Errorf("xdp-loader %s %s: %w\n%s", command, strings.Join(args, " "), err, out)
	}
	return string(out), err
}

func (d *dispatched) run(command string, args ...string) (out string) {
	d.t.Helper()
	out, err := d.loader(command, args...)
	if err != nil {
		d.t.Fatal(err)
	}
	return out
}

// passArgs load a program that passes every packet.
var passArgs = []string{"-m", "native", "-n", "xdp_pass", "/usr/lib/x86_64-linux-gnu/bpf/xdp-dispatcher.o"}

func (d *dispatched) load() { d.t.Helper(); d.run("load", passArgs...) }

// passes returns the ids of the programs that load has loaded.
func (d *dispatched) passes() (ids []string) {
	d.t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^ => +\d+ +xdp_pass +(\d+)`).FindAllStringSubmatch(d.run("status"), -1) {
		ids = append(ids, m[1])
	}
	return ids
}

// underTraffic calls f while packets flow, and returns when the last packet has arrived.
func (d *dispatched) underTraffic(f func()) {
	d.t.Helper()
	ctx, stop := context.WithCancel(d.t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- d.s.Run(ctx, 1<<40) }()
	f()
	stop()
	if err := <-done; err != nil {
		d.t.Fatal(err)
	}
	if err := d.s.Settle(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
}

// counts waits until 50 more packets are counted.
func (d *dispatched) counts() {
	d.t.Helper()
	total := func() uint64 {
		d.e.ctl.Lock()
		defer d.e.ctl.Unlock()
		p, err := backend.ReadOne(d.x, d.e.flows["a"].id)
		if err != nil {
			d.t.Fatal(err)
		}
		return p.Packets
	}
	was := total()
	lab.Eventually(d.t, "packets between two changes", func() bool { return total() > was+50 })
}

// replaceOthers lets xdp-loader make ten dispatchers, with one of its programs and with two in turns. The program of the instance
// goes along with each.
func (d *dispatched) replaceOthers() {
	d.t.Helper()
	for range 5 {
		d.counts()
		d.load()
		d.counts()
		d.run("unload", "--id", d.passes()[0])
	}
	if n := len(d.passes()); n != 1 {
		d.t.Fatalf("xdp-loader has %d programs, want 1", n)
	}
}

// check checks the total and the number of its discontinuities.
func (d *dispatched) check(when string, packets uint64, discontinuities uint64) {
	d.t.Helper()
	await(d.t, reader(d.t, d.cfg), "a", backend.Pair{Packets: packets, Bytes: 60 * packets})
	for _, entry := range d.e.writer.Entries() {
		if n := entry.Continuity.Discontinuities; uint64(n) != discontinuities {
			d.t.Errorf("%s: %d discontinuities of %s, want %d", when, n, entry.Name, discontinuities)
		}
	}
	d.t.Logf("%s: %d packets, each counted once, %d discontinuities", when, packets, discontinuities)
}

// An instance that starts beside xdp-loader's dispatcher counts in it while its other programs are replaced ten times under
// traffic. When xdp-loader takes the dispatcher away, with the instance's program, the instance takes the hook and declares a
// discontinuity. It leaves the hook under traffic when it is told to count by TCX, and joins the dispatcher that xdp-loader
// makes then. A rule set behind counts each packet that passes.
func TestDispatcherInAnInstance(t *testing.T) {
	d := newDispatched(t)
	passed := passedBehind(t, d.wire.Near)
	set := func(mode dataplane.Mode) {
		t.Helper()
		file := d.cfg
		file.Flows, file.Interfaces = nil, []dataplane.Interface{{Name: d.wire.Near.Name, Mode: mode}}
		if _, err := d.e.SetFlows(t.Context(), nil, dataplane.SetOptions{KeepOthers: true, Config: &file}); err != nil {
			t.Fatal(err)
		}
	}
	for round := range uint64(2) {
		d.underTraffic(d.replaceOthers)
		d.check("in the dispatcher", passed(), round)
		d.run("unload", "--all")
		awaitMode(t, d.e, d.x, dataplane.ModeNative)
		d.underTraffic(d.counts)
		d.check("after the dispatcher has left", passed(), round+1)
		d.underTraffic(func() {
			if out, err := d.loader("load", passArgs...); err == nil {
				t.Errorf("xdp-loader took the hook of the instance: %s", out)
			}
			set(dataplane.ModeTCX)
			awaitMode(t, d.e, d.x, dataplane.ModeTCX)
			d.load()
			set(dataplane.ModeAuto)
			awaitMode(t, d.e, d.x, dataplane.ModeDispatcher)
			d.counts()
		})
		d.check("after TCX, in the dispatcher again", passed(), round+1)
	}
}

// On a kernel without TCX an instance counts in the dispatcher, and takes the hook when the dispatcher has left. Beside another
// program it cannot count there, and says so.
func TestDispatcherWithoutTCX(t *testing.T) {
	d := newDispatched(t)
	sent := func() uint64 { return d.s.Sent()[0].Packets }
	d.underTraffic(d.replaceOthers)
	d.check("in the dispatcher", sent(), 0)
	d.run("unload", "--all")
	awaitMode(t, d.e, d.x, dataplane.ModeNative)
	d.underTraffic(d.counts)
	d.check("after the dispatcher has left", sent(), 1)
	if out, err := d.loader("load", passArgs...); err == nil {
		t.Errorf("xdp-loader took the hook of the instance: %s", out)
	}
	if err := d.e.Close(); err != nil {
		t.Fatal(err)
	}
	occupy(t, d.wire.Near)
	err := d.wire.Near.NS.Do(func() error {
		_, err := New(t.Context(), d.cfg, Options{})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "foreign") || !strings.Contains(err.Error(), "6.6") {
		t.Errorf("the start beside another program: %v", err)
	}
	t.Logf("the start beside another program: %v", err)
}
