package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/shm"
)

// instance is a configuration for the near end of a wire. The test runs it as often as it likes, each time as a
// process in the near namespace.
type instance struct {
	t      *testing.T
	wire   *lab.Wire
	name   string
	dir    string
	bin    string // of programs that are this test's binary
	mirror string
	pins   string
	under  []string // the command, with its flags, that runs the instance, if any
	sent   lab.Tally

	cmd  *exec.Cmd
	talk *lockedBuffer
}

// lockedBuffer is safe to read while a process writes to it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newInstance makes the wire and the configuration. settings is additional YAML.
func newInstance(t *testing.T, settings string) *instance {
	t.Helper()
	need.Netns(t)
	need.BPF(t)
	bpffs := need.BPFFS(t)
	wire, err := lab.NewWire(lab.WireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	in := &instance{t: t, wire: wire, name: lab.Unique("cli-"), dir: publicDir(t)}
	in.bin = filepath.Join(in.dir, "bin")
	in.mirror = shm.DefaultPath(in.name)
	in.pins = filepath.Join(bpffs, "flowtally", in.name)
	t.Cleanup(func() {
		in.kill()
		os.RemoveAll(in.pins)
		for _, path := range shm.Files(in.mirror) {
			os.Remove(path)
		}
		if err := wire.Close(); err != nil {
			t.Error(err)
		}
	})
	err = errors.Join(os.Mkdir(in.bin, 0o755),
		os.WriteFile(filepath.Join(in.dir, "config.yaml"), fmt.Appendf(nil,
			"instance: %s\ninterfaces: [{name: %s, mode: native}]\n%sflows:\n  - {name: udp, match: udp dport 7000}\n  - {name: rest, match: any, priority: 100}\n",
			in.name, wire.Near.Name, settings), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	ownBinary(t, in.bin, "flowtally", "flowtally-plugin")
	return in
}

// start runs the instance until it says that it counts.
func (in *instance) start(flags ...string) {
	in.t.Helper()
	in.begin(flags...)
	in.said(`"msg":"counting"`)
}

// begin starts the process.
func (in *instance) begin(flags ...string) {
	in.t.Helper()
	args := append([]string{"--log.format", "json", "run", "--config", filepath.Join(in.dir, "config.yaml"),
		"--socket", filepath.Join(in.dir, "run", "s.sock")}, flags...)
	command := append(slices.Clone(in.under), filepath.Join(in.bin, "flowtally"))
	in.cmd = exec.Command(command[0], append(command[1:], args...)...)
	in.talk = &lockedBuffer{}
	in.cmd.Stderr = in.talk
	if err := in.wire.Near.NS.Do(in.cmd.Start); err != nil {
		in.t.Fatal(err)
	}
}

// said waits for a text in the instance's output.
func (in *instance) said(what string) {
	in.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(in.talk.String(), what); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			in.t.Fatalf("flowtally run does not say %s:\n%s", what, in.talk)
		}
	}
}

// stop ends the instance by a signal. It must end with success.
func (in *instance) stop() {
	in.t.Helper()
	if err := in.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		in.t.Fatal(err)
	}
	if err := in.cmd.Wait(); err != nil {
		in.t.Fatalf("flowtally run ended with %v:\n%s", err, in.talk)
	}
	in.cmd = nil
}

func (in *instance) kill() {
	if in.cmd != nil {
		_ = in.cmd.Process.Kill()
		_ = in.cmd.Wait()
	}
}

// send sends n frames of UDP to port 7000 and as many to another.
func (in *instance) send(n uint64) {
	in.t.Helper()
	at := func(port uint16) []byte {
		return frame.Sized(100, frame.Eth{Dst: [6]byte{2, 0, 0, 0, 0, 1}, Src: [6]byte{2, 0, 0, 0, 0, 2}},
			frame.IPv4{Src: frame.Addr("192.0.2.1"), Dst: frame.Addr("192.0.2.2")}, frame.UDP{Src: 1, Dst: port})
	}
	s, err := in.wire.Far.NewSender([]lab.Stream{{Name: "udp", Frames: [][]byte{at(7000)}}, {Name: "rest", Frames: [][]byte{at(7001)}}}, lab.SenderOptions{})
	if err != nil {
		in.t.Fatal(err)
	}
	defer s.Close()
	if err := errors.Join(s.Run(in.t.Context(), n), s.Drain(in.t.Context())); err != nil {
		in.t.Fatal(err)
	}
	in.sent.Packets += s.Sent()[0].Packets
	in.sent.Bytes += s.Sent()[0].Bytes
}

// get is the output of flowtally get for the flow.
func (in *instance) get() (c view.CounterJSON, state string) {
	in.t.Helper()
	code, out, talk := run(in.t, "get", "-o", "json", "--mirror", in.mirror, "udp")
	var j view.ReadingJSON
	if err := json.Unmarshal([]byte(out), &j); code != exitOK || err != nil || len(j.Counters) != 1 {
		in.t.Fatalf("get: code %d, %v, %s%s", code, err, out, talk)
	}
	return j.Counters[0], j.Writer.State
}

// exact waits until the count equals the number of sent packets. It must never exceed that number.
func (in *instance) exact() {
	in.t.Helper()
	var got lab.Tally
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		c, _ := in.get()
		if c.Packets == nil {
			continue
		}
		if got = (lab.Tally{Packets: *c.Packets, Bytes: *c.Bytes}); got == in.sent || got.Packets > in.sent.Packets {
			break
		}
	}
	if got != in.sent {
		in.t.Fatalf("counted %+v, sent %+v\n%s", got, in.sent, in.talk)
	}
}

// attached reports whether a program is attached to the near end.
func (in *instance) attached() (is bool) {
	in.t.Helper()
	err := in.wire.Near.NS.Do(func() error {
		link, err := netlink.LinkByName(in.wire.Near.Name)
		if err == nil {
			xdp := link.Attrs().Xdp
			is = xdp != nil && xdp.Attached
		}
		return err
	})
	if err != nil {
		in.t.Fatal(err)
	}
	return is
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// The plugin launched by run counts real packets, and get reads them. After a signal only the mirror is left.
func TestRunCountsAndCleansUp(t *testing.T) {
	in := newInstance(t, "")
	for _, flags := range [][]string{nil, {"--embedded"}} {
		in.start(flags...)
		if !in.attached() {
			t.Errorf("%v: no program on the interface", flags)
		}
		in.send(10_000)
		in.exact()
		c, state := in.get()
		for deadline := time.Now().Add(20 * time.Second); state == "stale" && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			c, state = in.get() // it was kept from the CPU for a moment
		}
		if state != "run" || !c.Valid || c.ByteBasis != "l2" || !strings.Contains(c.Source, "xdp") || !strings.Contains(c.Source, "native") {
			t.Errorf("%v: state %s, %+v", flags, state, c)
		}
		in.stop()
		if _, state := in.get(); state != "halt" {
			t.Errorf("%v: writer state %s after the end, want halt", flags, state)
		}
		if in.attached() {
			t.Errorf("%v: a program is still on the interface", flags)
		}
		if exists(in.pins) {
			t.Errorf("%v: pins are left in %s", flags, in.pins)
		}
		if exists(filepath.Join(in.dir, "run", "s.sock")) {
			t.Errorf("%v: the control socket is left", flags)
		}
		in.exact() // readers go on, and the next round adds to the total
	}
}

// Two instances want one interface. Both the second one's error and doctor name the first, and the suggested remedy
// frees the hook.
func TestRunNamesTheInstanceThatHoldsAHook(t *testing.T) {
	in := newInstance(t, "xdp: {keep_pins: true}\n")
	in.start()
	other := lab.Unique("cli-")
	config := filepath.Join(in.dir, "other.yaml")
	text := "interfaces: [" + in.wire.Near.Name + "]\nflows: [{name: a, match: any}]\nxdp: {beside: [refuse]}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	second := func() (code int, talk string) {
		err := in.wire.Near.NS.Do(func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, filepath.Join(in.bin, "flowtally"), "run", "--strict", "--instance", other, "--config", config,
				"--socket", "-", "--mirror", filepath.Join(in.dir, "other", "x.mirror"))
			out, err := cmd.CombinedOutput()
			code, talk = cmd.ProcessState.ExitCode(), string(out)
			return err
		})
		if code == exitOK {
			t.Fatalf("it ran: %v\n%s", err, talk)
		}
		return code, talk
	}
	want := "hook is taken by instance " + in.name + " of flowtally; stop that instance; or, where it does not run any more: flowtally clean --pin-dir " + in.pins
	if code, talk := second(); code != exitFailed || !strings.Contains(talk, want) || strings.Contains(talk, "xdp off") {
		t.Errorf("code %d, it says\n%s", code, talk)
	}
	in.stop() // the pins stay
	if code, talk := second(); code != exitFailed || !strings.Contains(talk, want) {
		t.Errorf("code %d, it says\n%s", code, talk)
	}
	err := in.wire.Near.NS.Do(func() error {
		out, err := exec.Command(filepath.Join(in.bin, "flowtally"), "doctor", in.wire.Near.Name).CombinedOutput()
		if !strings.Contains(string(out), "held by instance "+in.name+" of flowtally") {
			t.Errorf("doctor says\n%s", out)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(in.pins); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); in.attached(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("without its pins it is attached")
		}
	}
}

// The total must have every packet, including those from while no process was running.
func TestKernelCountsOnBetweenTwoRunsWithKeepPins(t *testing.T) {
	in := newInstance(t, "xdp: {keep_pins: true}\n")
	in.start()
	in.send(1000)
	in.exact()
	in.stop()
	if !in.attached() || !exists(in.pins) {
		t.Fatalf("attached %v, pins %v; want both", in.attached(), exists(in.pins))
	}
	in.send(1000)
	in.start()
	in.exact()
	in.send(1000)
	in.exact()
	in.stop()
}

// The plugin must manage this with the few capabilities that it has kept. Otherwise a stop with keep_pins would stop
// counting.
func TestRunRestoresRemovedPinsBeforeItStops(t *testing.T) {
	in := newInstance(t, "xdp: {keep_pins: true}\n")
	in.start()
	if err := os.RemoveAll(in.pins); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); !exists(filepath.Join(in.pins, "meta")); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nothing is pinned again:\n%s", in.talk)
		}
	}
	in.stop()
	in.send(1000)
	in.start()
	in.exact()
	in.stop()
}

// The pins are gone for good, so the stop detaches. That is a failure, because the user asked to keep counting.
func TestStopFailsIfItCannotKeepThePins(t *testing.T) {
	fs := publicDir(t)
	need.Cap(t, "sys_admin") // to mount; a bpffs may be there for users too
	if err := unix.Mount("bpf", fs, "bpf", 0, "mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(fs, unix.MNT_DETACH) })
	in := newInstance(t, "xdp: {keep_pins: true, pin_dir: "+filepath.Join(fs, "pins")+"}\n")
	in.start()
	if err := unix.Unmount(fs, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if err := in.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	err := in.cmd.Wait()
	if code := in.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(in.talk.String(), "closing detaches the programs") {
		t.Errorf("ended with %d (%v) and says:\n%s", code, err, in.talk)
	}
	lab.Eventually(t, "no program on the interface", func() bool { return !in.attached() }) // the kernel frees an unmounted pin later
}
