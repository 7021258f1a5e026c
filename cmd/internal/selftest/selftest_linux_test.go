package selftest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/soft"
	"github.com/flowtally/flowtally/shm"
)

// waiting is the environment variable by which TestMain runs a selftest that waits for frames on an interface, to be
// killed.
const waiting = "FLOWTALLY_SELFTEST_WAITS"

// waitingDevice is the environment variable with the device that counts there, as in switchdev mode.
const waitingDevice = "FLOWTALLY_SELFTEST_DEVICE"

func TestMain(m *testing.M) {
	if code, is := engine.TrialMain(); is {
		os.Exit(code)
	}
	if ifname := os.Getenv(waiting); ifname != "" {
		o := options(ifname)
		o.Receive, o.Wait = true, time.Hour
		if o.Device = os.Getenv(waitingDevice); o.Device != "" {
			o.Switchdev = "its NIC is in switchdev mode"
		}
		_, _ = Run(context.Background(), o)
		os.Exit(1)
	}
	uverbs.Preload()
	err := lab.Isolate(lab.ForTests)
	if err == nil { // a selftest has fixed names in /run, and tests of other packages run it too
		err = unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=0755")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the tests share /run:", err)
	}
	code := m.Run()
	uverbs.Close()
	os.Exit(code)
}

// options of a selftest that counts in this process.
func options(ifname string) Options {
	return Options{
		Interface: ifname, Count: 400, Quiet: 300 * time.Millisecond,
		Start: func(ctx context.Context, cfg dataplane.Config) (dataplane.Service, error) {
			e, err := engine.New(ctx, cfg, engine.Options{Trial: engine.SelfTrial()})
			if err != nil {
				return nil, err
			}
			return e, nil
		},
	}
}

var (
	near4, far4 = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	far6        = netip.MustParseAddr("2001:db8::2")
)

// newWire is a veth pair whose ends have addresses of both families.
func newWire(t *testing.T) *lab.Wire {
	t.Helper()
	need.Root(t)
	need.BPF(t)
	need.BPFFS(t)
	need.Netns(t)
	need.TCX(t)
	w, err := lab.NewWire(lab.WireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	for _, a := range []struct {
		end  *lab.End
		addr string
	}{{w.Near, "192.0.2.1/24"}, {w.Near, "2001:db8::1/64"}, {w.Far, "192.0.2.2/24"}, {w.Far, "2001:db8::2/64"}} {
		if err := a.end.AddAddr(netip.MustParsePrefix(a.addr)); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func runOn(t *testing.T, end *lab.End, o Options) *Report {
	t.Helper()
	var rep *Report
	err := end.NS.Do(func() (err error) {
		rep, err = Run(t.Context(), o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

func part(t *testing.T, rep *Report, name string) Part {
	t.Helper()
	for _, p := range rep.Parts {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no part %q in %+v", name, rep.Parts)
	return Part{}
}

// nothingLeft checks that no pin, no file and no program of a selftest is left.
func nothingLeft(t *testing.T, end *lab.End) {
	t.Helper()
	pins, _ := filepath.Glob("/sys/fs/bpf/flowtally/selftest*")
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(shm.DefaultPath("selftest")), "selftest*"))
	if len(pins)+len(files) > 0 {
		t.Errorf("there are %v and %v", pins, files)
	}
	if n := programs(t, end); n != 0 {
		t.Errorf("%d programs are attached to %s", n, end.Name)
	}
}

// programs is how many programs are on the hooks of an interface.
func programs(t *testing.T, end *lab.End) (n int) {
	t.Helper()
	err := end.NS.Do(func() error {
		l, err := netlink.LinkByIndex(end.Index)
		if err != nil {
			return err
		}
		if x := l.Attrs().Xdp; x != nil && x.Attached {
			n++
		}
		q, err := link.QueryPrograms(link.QueryOptions{Target: end.Index, Attach: ebpf.AttachTCXEgress})
		if err == nil {
			n += len(q.Programs)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestSelftestIsExactOverVethAndLeavesNothing(t *testing.T) {
	w := newWire(t)
	for _, peer := range []netip.Addr{far4, far6} {
		o := options(w.Near.Name)
		o.Peer = peer
		rep := runOn(t, w.Near, o)
		if !rep.Exact || rep.Complete || rep.Instance != "selftest" {
			t.Errorf("%+v", rep)
		}
		for _, name := range []string{"egress", "egress-tagged", "ingress echo"} {
			p := part(t, rep, name)
			if p.Result != Exact || p.Sent != 400 || p.Counted != 400 || p.CountedBytes != p.SentBytes || p.SentBytes < 400*60 || p.ByteBasis != "layer 2 without FCS" {
				t.Errorf("%+v", p)
			}
		}
		if p := part(t, rep, "rdma"); p.Result != NotTested || p.Reason == "" {
			t.Errorf("%+v", p)
		}
		nothingLeft(t, w.Near)
	}
}

// The neighbor does not reply to every request. The report must say that the counts equal the replies that arrived, so
// the loss was on the way.
func TestLossIsReported(t *testing.T) {
	w := newWire(t)
	err := w.Far.NS.Do(func() error { // at most a reply in 20 ms
		return errors.Join(os.WriteFile("/proc/sys/net/ipv4/icmp_ratemask", []byte("1"), 0), os.WriteFile("/proc/sys/net/ipv4/icmp_ratelimit", []byte("20"), 0))
	})
	if err != nil {
		t.Fatal(err)
	}
	o := options(w.Near.Name)
	o.Peer, o.Count = far4, 100
	rep := runOn(t, w.Near, o)
	p := part(t, rep, "ingress echo")
	if rep.Exact || p.Result != Differs || p.Sent != 100 || p.Counted >= 100 || *p.Received != p.Counted || !strings.Contains(p.Reason, "on the way") {
		t.Errorf("%+v", p)
	}
	// A neighbor that is not there.
	o.Peer, o.Count = netip.MustParseAddr("192.0.2.9"), 3
	if p := part(t, runOn(t, w.Near, o), "ingress echo"); p.Result != Differs || p.Counted != 0 || !strings.HasPrefix(p.Reason, "no reply came: is 192.0.2.9 a neighbor") {
		t.Errorf("%+v", p)
	}
	nothingLeft(t, w.Near)
}

// dropShortest drops every outgoing frame of 60 bytes on an interface, after the counting programs.
func dropShortest(t *testing.T, end *lab.End) {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R1, asm.R1, 0, asm.Word), // len of struct __sk_buff
		asm.Mov.Imm(asm.R0, -1),                  // TCX_NEXT
		asm.JNE.Imm(asm.R1, 60, "out"),
		asm.Mov.Imm(asm.R0, 2), // TCX_DROP
		asm.Return().WithSymbol("out"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	err = end.NS.Do(func() error {
		l, err := link.AttachTCX(link.TCXOptions{Interface: end.Index, Program: p, Attach: ebpf.AttachTCXEgress, Anchor: link.Tail()})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A selftest with Receive counts exactly the frames of one with Send. Frames lost between the two are a difference.
func TestFramesOfAnotherHostAreCountedAndLossIsReported(t *testing.T) {
	w := newWire(t)
	for _, lossy := range []bool{false, true} {
		if lossy {
			dropShortest(t, w.Far)
		}
		ready, sent := make(chan struct{}), make(chan *Report, 1)
		o := options(w.Near.Name)
		o.Receive, o.Ready = true, func(net.HardwareAddr) { close(ready) }
		go func() {
			select {
			case <-ready:
			case <-t.Context().Done():
			}
			o := options(w.Far.Name)
			o.Instance, o.Send, o.Peer = "selftest-far", true, near4
			var rep *Report
			if err := w.Far.NS.Do(func() (err error) { rep, err = Run(t.Context(), o); return err }); err != nil {
				t.Error(err)
			}
			sent <- rep
		}()
		rep := runOn(t, w.Near, o)
		far := <-sent
		if far == nil {
			t.FailNow()
		}
		for _, name := range []string{"egress", "egress-tagged"} {
			if p := part(t, far, name); p.Result != Exact || p.Counted != 400 {
				t.Errorf("lossy %t: the sender's %+v", lossy, p)
			} else if want := map[string]uint64{"egress": 50}[name]; lossy && p.Dropped != want {
				t.Errorf("%d frames dropped, want %d", p.Dropped, want)
			}
		}
		p := part(t, rep, "ingress frames")
		if want := uint64(800 - map[bool]int{true: 50}[lossy]); p.Sent != 800 || p.Counted != want || *p.Received != want || (p.Result == Exact) == lossy {
			t.Errorf("lossy %t: %+v, received %d", lossy, p, *p.Received)
		}
		if !lossy && p.CountedBytes != p.SentBytes {
			t.Errorf("%+v", p)
		}
	}
	nothingLeft(t, w.Near)
}

// On an interface of the running instance, that instance counts the flows of the test, and keeps its own flows. A flow
// left there by a killed selftest is removed.
func TestRunningInstanceCountsAndKeepsItsOwnFlows(t *testing.T) {
	w := newWire(t)
	var e *engine.Engine
	err := w.Near.NS.Do(func() (err error) {
		e, err = engine.New(t.Context(), dataplane.Config{
			Instance: "taken", Interfaces: []dataplane.Interface{{Name: w.Near.Name}},
			Flows: []flow.Flow{{Name: "all", Priority: 10}},
		}, engine.Options{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { e.Close(); sweep("taken") }()
	if _, err := e.AddFlows(t.Context(), flow.Flow{Name: flowPrefix + "egress", Direction: flow.Egress}); err != nil {
		t.Fatal(err)
	}
	o := options(w.Near.Name)
	o.Peer = far4
	o.Running = func(context.Context) (dataplane.Service, error) { return unclosed{e}, nil }
	rep := runOn(t, w.Near, o)
	if !rep.Exact || rep.Instance != "taken" || part(t, rep, "ingress echo").Counted != 400 || part(t, rep, "egress").Counted != 400 {
		t.Errorf("%+v", rep)
	}
	placed, err := e.Placements(t.Context())
	if err != nil || len(placed) != 1 || placed[0].Flow.Name != "all" {
		t.Errorf("the instance has %+v, %v", placed, err)
	}
	// A flow of priority 0 goes before the flows of the test.
	if _, err := e.AddFlows(t.Context(), flow.Flow{Name: "icmp", Match: flow.Match{ICMP: new(flow.ICMP)}}); err != nil {
		t.Fatal(err)
	}
	if p := part(t, runOn(t, w.Near, o), "ingress echo"); p.Result != NotTested || !strings.Contains(p.Reason, "flow icmp of instance taken has priority 0") {
		t.Errorf("%+v", p)
	}
	// On another interface a temporary instance counts.
	o = options(w.Far.Name)
	o.Running = func(context.Context) (dataplane.Service, error) { return unclosed{e}, nil }
	if rep := runOn(t, w.Far, o); !rep.Exact || rep.Instance != "selftest" {
		t.Errorf("%+v", rep)
	}
	nothingLeft(t, w.Far)
}

// unclosed is an instance owned by the test. The selftest closes only its connection to it.
type unclosed struct{ *engine.Engine }

func (unclosed) Close() error { return nil }

// These are programs, pins and files.
func TestNextSelftestRemovesWhatAKilledOneLeft(t *testing.T) {
	w := newWire(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), waiting+"="+w.Near.Name)
	cmd.Stderr = os.Stderr
	if err := w.Near.NS.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	lab.Eventually(t, "a program of the selftest is pinned", func() bool { // a link without a pin ends with its process
		pins, _ := filepath.Glob("/sys/fs/bpf/flowtally/selftest/link-*")
		return len(pins) > 0
	})
	if err := errors.Join(cmd.Process.Kill(), ignoreExit(cmd.Wait())); err != nil {
		t.Fatal(err)
	}
	if programs(t, w.Near) == 0 {
		t.Fatal("the killed selftest has left no program: the test looks at nothing")
	}
	rep := runOn(t, w.Near, options(w.Near.Name))
	if p := part(t, rep, "egress"); !rep.Exact || p.Counted != 400 {
		t.Errorf("%+v", rep)
	}
	nothingLeft(t, w.Near)
}

func ignoreExit(err error) error {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil
	}
	return err
}

func TestSelftestRemovesItsObjectsAtASignal(t *testing.T) {
	w := newWire(t)
	ctx, cancel := context.WithCancel(t.Context())
	o := options(w.Near.Name)
	o.Receive, o.Wait, o.Ready = true, time.Hour, func(net.HardwareAddr) { cancel() }
	err := w.Near.NS.Do(func() error { _, err := Run(ctx, o); return err })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	nothingLeft(t, w.Near)
}

func TestSecondSelftestIsRefused(t *testing.T) {
	w := newWire(t)
	o := options(w.Near.Name)
	o.Receive, o.Wait = true, time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	o.Ready = func(net.HardwareAddr) {
		defer cancel()
		if _, err := Run(ctx, o); !errors.Is(err, dataplane.ErrInUse) {
			t.Errorf("the second: %v", err)
		}
	}
	_ = w.Near.NS.Do(func() error { _, err := Run(ctx, o); return err })
}

// Any user can take the name of an abstract socket. Only another selftest may keep root's selftest from running.
func TestAnotherUserCannotBlockASelftest(t *testing.T) {
	need.Root(t)
	if l, err := net.Listen("unix", "@flowtally-selftest"); err == nil { // as user nobody could
		defer l.Close()
	}
	o := Options{Device: "none0", Start: func(context.Context, dataplane.Config) (dataplane.Service, error) {
		return nil, errors.New("no device")
	}}
	if _, err := Run(t.Context(), o); err != nil {
		t.Error(err)
	}
	path := lockPath("selftest")
	unlock, err := lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), o); !errors.Is(err, dataplane.ErrInUse) {
		t.Errorf("beside another selftest: %v", err)
	}
	unlock()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock is left: %v", err)
	}
}

// The part for queue pairs cannot start, because an instance of its name is running. It must not remove that
// instance's mirror.
func TestSelftestLeavesTheMirrorOfAnInstanceWithItsName(t *testing.T) {
	need.Root(t)
	path := shm.DefaultPath("selftest-rdma")
	w, err := shm.Create(shm.Options{Path: path, History: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Discard()
	o := options("")
	o.Device = "none0"
	rep, err := Run(t.Context(), o)
	if err != nil || part(t, rep, "rdma").Result != NotTested {
		t.Errorf("%+v, %v", rep, err)
	}
	if err := w.Intact(); err != nil {
		t.Errorf("the mirror of the other instance: %v", err)
	}
}

// uverbs is below the host's RDMA libraries.
var uverbs soft.Kernel

func TestMessagesBetweenTwoQueuePairsAreCountedExactly(t *testing.T) {
	nic := soft.NewNIC(t, &uverbs)
	nic.Env.Set(t.Setenv)
	o := options("")
	o.Device, o.RDMA = nic.Device, nic.Config.RDMA
	rep := runOn(t, nic.Wire.Near, o)
	for _, name := range []string{"rdma near-sent", "rdma far-received"} {
		if p := part(t, rep, name); p.Result != Exact || p.Sent != 400 || p.Counted != 400 {
			t.Errorf("%+v", p)
		}
	}
	if !rep.Exact || rep.Complete || part(t, rep, "egress").Result != NotTested {
		t.Errorf("%+v", rep)
	}
	// A device that is not there.
	o.Device = "none0"
	if p := part(t, runOn(t, nic.Wire.Near, o), "rdma"); p.Result != NotTested || !strings.Contains(p.Reason, "none0") {
		t.Errorf("%+v", p)
	}
	nothingLeft(t, nic.Wire.Near)
}
