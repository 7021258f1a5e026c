package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/flowtally/flowtally/configs"
	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/lab/times"
	"github.com/flowtally/flowtally/plugin"
	"github.com/flowtally/flowtally/shm"
)

// crowd gives an instance flows, every second one a drop rule, and further interfaces in its namespace.
func (in *instance) crowd(flows, veths int, settings string) {
	in.t.Helper()
	names := []string{in.wire.Near.Name}
	for n := range veths {
		name := fmt.Sprintf("more%d", n)
		err := in.wire.Near.NS.Do(func() error {
			return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "p"})
		})
		if err != nil {
			in.t.Fatal(err)
		}
		names = append(names, name)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "instance: %s\n%sinterfaces:\n", in.name, settings)
	for _, name := range names {
		fmt.Fprintf(&text, "  - {name: %s}\n", name)
	}
	text.WriteString("flows:\n  - {name: udp, match: udp dport 7000}\n")
	for n := range flows {
		fmt.Fprintf(&text, "  - {name: f%d, match: ipv4 src 10.%d.%d.%d", n, n>>16&255, n>>8&255, n&255)
		if n%2 == 0 {
			text.WriteString(", action: drop")
		}
		if n%3 == 0 {
			text.WriteString(", direction: egress")
		}
		text.WriteString("}\n")
	}
	if err := os.WriteFile(filepath.Join(in.dir, "config.yaml"), []byte(text.String()), 0o644); err != nil {
		in.t.Fatal(err)
	}
}

// programs counts the programs on the hooks of the interfaces in the instance's namespace.
func (in *instance) programs() (n int) {
	in.t.Helper()
	err := in.wire.Near.NS.Do(func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			if x := l.Attrs().Xdp; x != nil && x.Attached {
				n++
			}
			for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
				got, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: at})
				if err == nil {
					n += len(got.Programs)
				}
			}
		}
		return err
	})
	if err != nil {
		in.t.Fatal(err)
	}
	return n
}

// pinned lists what is in the directory of the pins.
func (in *instance) pinned() (names []string) {
	entries, _ := os.ReadDir(in.pins)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// finish waits for the end of the process, and returns its exit code.
func (in *instance) finish() int {
	in.t.Helper()
	over := make(chan error, 1)
	go func() { over <- in.cmd.Wait() }()
	select {
	case err := <-over:
		in.cmd = nil
		var code *exec.ExitError
		if errors.As(err, &code) {
			return code.ExitCode()
		}
		if err != nil {
			in.t.Fatal(err)
		}
		return exitOK
	case <-time.After(time.Minute):
		in.t.Fatalf("the instance does not end:\n%s", in.talk)
		return 0
	}
}

// counts reports whether the start had ended, for the instance to count.
func (in *instance) counts() bool { return strings.Contains(in.talk.String(), `"msg":"stopping"`) }

// endsClean checks that an ended start has left nothing, and that its exit code and its message say so. A signal after
// the start ends a running instance, with code 0.
func (in *instance) endsClean(what string) {
	in.t.Helper()
	code := in.finish()
	if n := in.programs(); n != 0 {
		in.t.Errorf("%s: %d programs are attached; it wrote:\n%s", what, n, in.talk)
	}
	if p := in.pinned(); len(p) != 0 || exists(in.pins) {
		in.t.Errorf("%s: %v are pinned in %s; it wrote:\n%s", what, p, in.pins, in.talk)
	}
	switch {
	case in.counts():
		if code != exitOK {
			in.t.Errorf("%s: exit code %d of an instance that ran:\n%s", what, code, in.talk)
		}
	case code == exitOK:
		in.t.Errorf("%s: exit code 0 of an instance that never counted:\n%s", what, in.talk)
	case code == -1 && in.talk.String() == "": // the signal came before the program could take it, and so before any step
	case !strings.Contains(in.talk.String(), "ended the start") && !strings.Contains(in.talk.String(), "context canceled"):
		in.t.Errorf("%s: code %d, and no message says that a signal ended the start:\n%s", what, code, in.talk)
	}
}

// steps starts the instance once undisturbed, and returns the messages of its start in their order, and its time.
func (in *instance) steps(flags ...string) (messages []string, took time.Duration) {
	in.t.Helper()
	began := time.Now()
	in.start(flags...)
	took = time.Since(began)
	in.stop()
	for line := range strings.Lines(in.talk.String()) {
		var said struct {
			Msg string `json:"msg"`
		}
		if json.Unmarshal([]byte(line), &said) != nil || slices.Contains(messages, said.Msg) {
			continue
		}
		messages = append(messages, said.Msg)
		if said.Msg == "counting" {
			break
		}
	}
	return messages, took
}

// ways are the ways to run an instance.
var ways = map[string][]string{"supervised": nil, "embedded": {"--embedded"}}

// TestSignalAtAnyStepOfAStartLeavesNothing sends signals at each message of a start and at 100 random instants. Most of its
// time is spent waiting, so several instances take turns.
func TestSignalAtAnyStepOfAStartLeavesNothing(t *testing.T) {
	instants, flows := times.Brief(100, 8), times.Brief(300, 2_000)
	if os.Getenv("FLOWTALLY_STRESS") != "" {
		instants, flows = 400, 20_000
	}
	const together = 2 // of each way
	t.Setenv("FLOWTALLY_LOG_LEVEL", "debug")
	for way, flags := range ways {
		for n := range together {
			t.Run(fmt.Sprint(way, " ", n+1), func(t *testing.T) {
				t.Parallel()
				in := newInstance(t, "")
				in.crowd(flows, 3, "")
				messages, took := in.steps(flags...)
				t.Logf("a start takes %v and says %q", took, messages)
				if n == 0 {
					in.endAtMessages(messages, flags)
				}
				in.endAtInstants(seed.Rand(t), instants/len(ways)/together, took, flags)
			})
		}
	}
}

// endAtMessages ends a start at each of its messages.
func (in *instance) endAtMessages(messages, flags []string) {
	in.t.Helper()
	for _, m := range messages {
		in.forget()
		in.begin(flags...)
		in.said(`"msg":` + quoted(m))
		in.signal(syscall.SIGTERM)
		in.endsClean("SIGTERM at " + m)
	}
}

// endAtInstants ends n starts, each within the time that one takes.
func (in *instance) endAtInstants(r *rand.Rand, n int, took time.Duration, flags []string) {
	in.t.Helper()
	for range n {
		after := time.Duration(r.Int64N(int64(took)))
		s := []syscall.Signal{syscall.SIGTERM, syscall.SIGINT}[r.IntN(2)]
		in.forget()
		in.begin(flags...)
		time.Sleep(after)
		in.signal(s)
		if r.IntN(4) == 0 { // a second request
			time.Sleep(sameRequest + time.Duration(r.Int64N(int64(took))))
			in.signal(s)
		}
		in.endsClean(fmt.Sprintf("%v after %v", s, after))
	}
}

// forget removes the mirror, so that the next start is a first one.
func (in *instance) forget() {
	for _, path := range shm.Files(in.mirror) {
		_ = os.Remove(path)
	}
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func (in *instance) signal(s syscall.Signal) {
	in.t.Helper()
	if err := in.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		in.t.Fatal(err)
	}
}

// With keep_pins, everything pinned before the start stays pinned and attached, and counts. The ended start leaves
// nothing of its own.
func TestSignalInAStartKeepsWhatWasPinned(t *testing.T) {
	for way, flags := range ways {
		t.Run(way, func(t *testing.T) {
			in := newInstance(t, "")
			in.crowd(500, 2, "xdp: {keep_pins: true}\n")
			r := seed.Rand(t)
			in.begin(flags...)
			in.said(`"msg":"attached"`)
			in.signal(syscall.SIGTERM)
			if code := in.finish(); !in.counts() && code == exitOK {
				t.Errorf("code 0 of a start that a signal ended")
			}
			started := in.counts() || strings.Contains(in.talk.String(), "before its first values")
			if !started && (in.programs() != 0 || exists(in.pins)) {
				t.Errorf("%d programs, pins %v of a first start; want none", in.programs(), in.pinned())
			}

			began := time.Now()
			in.start(flags...)
			took := time.Since(began)
			in.stop()
			programs, pins := in.programs(), in.pinned()
			if programs == 0 || len(pins) == 0 {
				t.Fatalf("%d programs, pins %v after a stop with keep_pins", programs, pins)
			}
			for range 6 {
				in.begin(flags...)
				time.Sleep(time.Duration(r.Int64N(int64(took))))
				in.signal(syscall.SIGTERM)
				if code := in.finish(); !in.counts() && code == exitOK {
					t.Errorf("code 0 of a start that a signal ended:\n%s", in.talk)
				}
				if n, p := in.programs(), in.pinned(); n != programs || !slices.Equal(p, pins) {
					t.Fatalf("%d programs and pins %v, want %d and %v; it wrote:\n%s", n, p, programs, pins, in.talk)
				}
			}
			in.send(1_000)
			in.start(flags...)
			in.exact()
			in.stop()
		})
	}
}

// The start runs into its time limit, or its context ends, or the plugin hangs with programs attached.
func TestStartThatEndsByItsBoundLeavesNothing(t *testing.T) {
	in := newInstance(t, "")
	in.crowd(2_000, 3, "")
	cfg, err := configs.Load(filepath.Join(in.dir, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]struct {
		bound, context time.Duration
		hangs          bool
	}{
		"the bound":    {bound: 300 * time.Millisecond},
		"the context":  {context: 400 * time.Millisecond},
		"a hung start": {bound: 3 * time.Second, hangs: true},
	} {
		ctx := t.Context()
		if end.context > 0 {
			short, cancel := context.WithTimeout(ctx, end.context)
			defer cancel()
			ctx = short
		}
		log := &lockedBuffer{}
		o := plugin.Options{Path: filepath.Join(in.bin, "flowtally-plugin"), Config: cfg, ConfigureTimeout: end.bound,
			Logger: slog.New(slog.NewTextHandler(log, nil))}
		if end.hangs {
			go func() {
				for !strings.Contains(log.String(), "msg=attached") {
					time.Sleep(time.Millisecond)
				}
				pids, _ := filepath.Glob("/proc/[0-9]*/comm")
				for _, path := range pids {
					exe, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
					if pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && strings.HasPrefix(string(exe), o.Path) {
						_ = syscall.Kill(pid, syscall.SIGSTOP)
					}
				}
			}()
		}
		err := in.wire.Near.NS.Do(func() error {
			c, err := plugin.Launch(ctx, o)
			if err == nil {
				_ = c.Close()
			}
			return err
		})
		if err == nil {
			t.Logf("%s: the start was faster", name)
			for _, path := range shm.Files(in.mirror) { // a stop keeps it, and the next start would find it
				os.Remove(path)
			}
			continue
		}
		if n := in.programs(); n != 0 || exists(in.pins) || exists(in.mirror) {
			t.Errorf("%s: %d programs, pins %v, mirror %v after %v:\n%s", name, n, in.pinned(), exists(in.mirror), err, log)
		}
	}
}
