//go:build vm && linux

package engine

import (
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
	kernel "github.com/flowtally/flowtally/xdp"
)

// dispatched is an instance beside the distribution's xdp-loader, with traffic.
type dispatched struct {
	*moving
	x *xdp.Backend
}

func newDispatched(t *testing.T) *dispatched {
	t.Helper()
	b := newBench(t, "auto", flow.Flow{Name: "a", Match: match(t, "udp dport 1001")})
	d := &dispatched{moving: &moving{bench: b, t: t}}
	d.load()
	d.e, d.x = b.startRetaking(t, 50*time.Millisecond)
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

// replaceOthers lets xdp-loader make ten dispatchers, with one of its programs and with two in turns. The program of the instance
// goes along with each.
func (d *dispatched) replaceOthers() {
	d.t.Helper()
	for range 5 {
		d.awaitMore()
		d.load()
		d.awaitMore()
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
	d.t.Logf("%s: %d packets counted, %d discontinuities", when, packets, discontinuities)
}

// An instance that starts beside xdp-loader's dispatcher counts in it while its other programs are replaced ten times under
// traffic. When xdp-loader takes the dispatcher away, with the instance's program, the instance takes the hook and declares a
// discontinuity. It leaves the hook under traffic when it is told to count by TCX, and joins the dispatcher that xdp-loader
// makes then: two more discontinuities. Between them each packet that passes is counted once. A rule set behind counts the
// packets that pass.
func TestInstanceInADispatcherCountsEachPacketOnce(t *testing.T) {
	d := newDispatched(t)
	passed := passedBehind(t, d.wire.Near)
	var twice uint64 // packets that the moves have counted twice
	for round := range uint64(2) {
		underTraffic(t, d.s, d.replaceOthers)
		d.check("in the dispatcher", passed()+twice, 3*round)
		d.run("unload", "--all")
		awaitMode(t, d.e, d.x, dataplane.ModeNative)
		underTraffic(t, d.s, d.awaitMore)
		d.check("after the dispatcher has left", passed()+twice, 3*round+1)

		underTraffic(t, d.s, func() {
			if out, err := d.loader("load", passArgs...); err == nil {
				t.Errorf("xdp-loader took the hook of the instance: %s", out)
			}
			d.set(dataplane.ModeTCX)
			awaitMode(t, d.e, d.x, dataplane.ModeTCX)
			d.load()
			d.set(dataplane.ModeAuto)
			awaitMode(t, d.e, d.x, dataplane.ModeDispatcher)
			d.awaitMore()
		})

		counted := d.counted().Packets
		if counted < passed()+twice {
			t.Errorf("%d packets passed, and %d were counted: the moves have missed some", passed(), counted-twice)
		}
		twice = counted - passed()
		lab.Eventually(t, "the discontinuities of the moves", func() bool { return discontinuitiesOf(d.e, "a") >= 3*round+3 })
		underTraffic(t, d.s, d.awaitMore)
		d.check("after TCX, in the dispatcher again", passed()+twice, 3*round+3)
	}
	t.Logf("%d packets were counted twice in the moves", twice)
}

// TestDetachEmptiesThePlaceInTheDispatcher: the programs of an instance that runs are taken out of the dispatcher by its pins
// alone, as `flowtally detach` takes them. The other programs of the dispatcher go on, and packets pass.
func TestDetachEmptiesThePlaceInTheDispatcher(t *testing.T) {
	d := newDispatched(t)
	passed := passedBehind(t, d.wire.Near)
	underTraffic(t, d.s, d.awaitMore)
	d.check("in the dispatcher", passed(), 0)
	counted := d.counted()

	done, err := kernel.Release(d.cfg.XDP.PinDir, kernel.ReleaseOptions{Held: true})
	if err != nil || done.Programs != 1 {
		t.Fatalf("released %+v, %v; want one program", done, err)
	}
	if n := len(d.passes()); n != 1 {
		t.Errorf("xdp-loader has %d programs behind it, want 1", n)
	}
	before := passed()
	underTraffic(t, d.s, func() {
		lab.Eventually(t, "packets that pass", func() bool { return passed() >= before+100 })
	})
	if now := d.counted(); now != counted {
		t.Errorf("a detached instance has gone on from %+v to %+v", counted, now)
	}
	if done, err := kernel.Release(d.cfg.XDP.PinDir, kernel.ReleaseOptions{Held: true}); err != nil || done.Programs != 0 {
		t.Errorf("released again %+v, %v; want nothing", done, err)
	}
}

// passedBehind counts the packets of UDP to port 1001 that pass the ingress of an end.
func passedBehind(t *testing.T, e *lab.End) (passed func() uint64) {
	t.Helper()
	rs, err := kernel.Open(kernel.Options{MaxRules: 64})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rs.Destroy() })
	c, err := rs.AllocCounter("all")
	if err != nil {
		t.Fatal(err)
	}
	r := kernel.Rule{Counter: c.ID}
	r.Key.Out.Proto, r.Mask.Out.Proto = 17, 0xff
	r.Key.Out.L4, r.Mask.Out.L4 = [4]byte{0, 0, 1001 >> 8, 1001 & 0xff}, [4]byte{0, 0, 0xff, 0xff}
	r.Key.Out.Flags, r.Mask.Out.Flags = kernel.FlagIPv4|kernel.FlagL4, kernel.FlagIPv4|kernel.FlagL4
	if err := rs.Add(r); err != nil {
		t.Fatal(err)
	}
	err = e.NS.Do(func() error {
		_, err := rs.Attach(e.Name, kernel.AttachOptions{Mode: kernel.ModeTCX, Ingress: true, Last: true})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() uint64 {
		var p [1]kernel.Pair
		if err := rs.Read([]uint32{c.ID}, p[:]); err != nil {
			t.Fatal(err)
		}
		return p[0].Packets
	}
}

// On a kernel without TCX an instance counts in the dispatcher, and takes the hook when the dispatcher has left. Beside another
// program it cannot count there, and says so.
func TestWithoutTCXAnInstanceCountsInTheDispatcher(t *testing.T) {
	d := newDispatched(t)
	sent := func() uint64 { return d.s.Sent()[0].Packets }
	underTraffic(t, d.s, d.replaceOthers)
	d.check("in the dispatcher", sent(), 0)
	d.run("unload", "--all")
	awaitMode(t, d.e, d.x, dataplane.ModeNative)
	underTraffic(t, d.s, d.awaitMore)
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
