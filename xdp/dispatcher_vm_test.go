//go:build vm && linux

package xdp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/xdp/dispatcher"
)

// tools runs the distribution's xdp-tools on an interface.
type tools struct {
	t   *testing.T
	end *lab.End
}

func (x tools) run(name string, args ...string) string {
	x.t.Helper()
	out, err := x.output(name, args...)
	if err != nil {
		x.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func (x tools) output(name string, args ...string) (out string, err error) {
	x.t.Helper()
	err = x.end.NS.Do(func() error {
		text, err := exec.CommandContext(x.t.Context(), name, args...).CombinedOutput()
		out = string(text)
		return err
	})
	return out, err
}

// components lists the programs in the dispatcher, in their order.
func (x tools) components() (names []string) {
	for _, m := range regexp.MustCompile(`(?m)^ => +\d+ +(\S+)`).FindAllStringSubmatch(x.run("xdp-loader", "status", x.end.Name), -1) {
		names = append(names, m[1])
	}
	return names
}

// pass is an object of xdp-tools with the program xdp_pass.
const passObject = "/usr/lib/x86_64-linux-gnu/bpf/xdp-dispatcher.o"

// hits is how many packets of a source port xdp-filter has dropped. Its status exits with an error where it has no map of
// addresses.
func (x tools) hits(port int) uint64 {
	x.t.Helper()
	out, _ := x.output("xdp-filter", "status")
	m := regexp.MustCompile(fmt.Sprintf(`(?m)^ +%d +src,udp +(\d+)`, port)).FindStringSubmatch(out)
	if m == nil {
		x.t.Fatalf("xdp-filter knows no port %d", port)
	}
	n, err := strconv.ParseUint(m[1], 10, 64)
	if err != nil {
		x.t.Fatal(err)
	}
	return n
}

func dispatcherWire(t *testing.T) (*lab.Wire, tools) {
	t.Helper()
	w, err := lab.NewWire(lab.WireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	x := tools{t, w.Near}
	x.run("xdp-filter", "load", w.Near.Name, "-m", "native", "-f", "udp", "-p", "allow")
	x.run("xdp-filter", "port", "1001", "-m", "src", "-p", "udp")
	return w, x
}

// The dispatcher is that of Debian's xdp-filter, which drops the second flow. Both sides count all packets, and both change the
// dispatcher.
func TestDispatcherCountsEveryPacketOverChangesOfEitherSide(t *testing.T) {
	w, x := dispatcherWire(t)
	if got := x.components(); !slices.Equal(got, []string{"xdpfilt_alw_udp"}) {
		t.Fatalf("components %v before", got)
	}
	dp := openTest(t, Options{MaxRules: 1024, PinDir: pinDir(t)})
	ids := floodRules(t, dp, 3)
	var want []Pair
	dropped := x.hits(1001)
	check := func(when string) {
		t.Helper()
		s := flood(t, w.Far, len(ids), 100, lab.SenderOptions{})
		if err := s.Run(t.Context(), 3000); err != nil {
			t.Fatal(err)
		}
		if err := s.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = make([]Pair, len(ids))
		}
		for i, p := range s.Sent() {
			want[i].Packets += p.Packets
			want[i].Bytes += p.Bytes
		}
		dropped += s.Sent()[1].Packets
		var got []Pair
		for _, id := range ids {
			got = append(got, readOne(t, dp, id))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: counted %d, want %d", when, got, want)
		}
		t.Logf("%s: counted %d", when, got)
	}
	o := AttachOptions{Ingress: true, Dispatcher: true}
	if a := attach(t, dp, w.Near, o); a[0].Mode != modeDispatcher || !a[0].Fresh {
		t.Fatalf("attachment %+v, want mode dispatcher", a[0])
	}
	if got := x.components(); len(got) != 2 || got[1] != "xdpfilt_alw_udp" {
		t.Fatalf("components %v, want ours and xdp-filter's", got)
	}
	check("beside xdp-filter")
	if n := x.hits(1001); n != dropped {
		t.Errorf("xdp-filter dropped %d packets, want %d", n, dropped)
	}

	// A rule of a new layer exchanges our program.
	was := dp.Stats().Programs
	r := exact4(1, 2, 3, 4, mustCounter(t, dp, "another layer"))
	r.Key.Out.VLAN[0], r.Mask.Out.VLAN[0] = [2]byte{0, 7}, [2]byte{0x0f, 0xff}
	r.Key.Out.Flags |= FlagTag1
	r.Mask.Out.Flags |= FlagTag1
	mustAdd(t, dp, r)
	if dp.Stats().Programs == was {
		t.Error("no program was exchanged")
	}
	check("after an exchange of ours")

	x.run("xdp-loader", "load", "-m", "native", "-n", "xdp_pass", w.Near.Name, passObject)
	if dp.Held() != 1 {
		t.Error("not held after libxdp changed the dispatcher")
	}
	if a := attach(t, dp, w.Near, o); a[0].Fresh || a[0].Mode != modeDispatcher {
		t.Errorf("attachment %+v, want the one of before", a[0])
	}
	check("after libxdp added a program")

	if err := dp.Close(); err != nil {
		t.Fatal(err)
	}
	check2 := flood(t, w.Far, len(ids), 100, lab.SenderOptions{})
	if err := check2.Run(t.Context(), 3000); err != nil {
		t.Fatal(err)
	}
	if err := check2.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, p := range check2.Sent() {
		want[i].Packets += p.Packets
		want[i].Bytes += p.Bytes
	}
	dropped += check2.Sent()[1].Packets
	dir := dp.dir
	err := w.Near.NS.Do(func() error {
		dp = openTest(t, Options{MaxRules: 1024, PinDir: dir})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if a := dp.Attachments(); len(a) != 1 || a[0].Mode != modeDispatcher || !a[0].Adopted {
		t.Fatalf("after a restart: %+v", a)
	}
	check("after a restart")
	if n := x.hits(1001); n != dropped {
		t.Errorf("xdp-filter dropped %d packets, want %d", n, dropped)
	}

	// A flow that drops hides its packets from the other components.
	all := dp.Rules()
	drop := all[slices.IndexFunc(all, func(r Rule) bool { return r.Counter == ids[1] })]
	fresh := drop
	fresh.Drop = true
	if err := dp.Exchange([]Rule{drop}, []Rule{fresh}); err != nil {
		t.Fatal(err)
	}
	before := x.hits(1001)
	check("with a flow that drops")
	if n := x.hits(1001); n != before {
		t.Errorf("xdp-filter saw %d packets that a flow dropped", n-before)
	}

	// Without the pin of its link our component does not run.
	pins, err := filepath.Glob(filepath.Join(dispatcher.Dir, "dispatch-*", "prog0-link"))
	if err != nil || len(pins) != 1 {
		t.Fatalf("pins %v, %v", pins, err)
	}
	if err := os.Remove(pins[0]); err != nil {
		t.Fatal(err)
	}
	if dp.Held() != 0 {
		t.Error("held without the pin of the link")
	}
	if a := attach(t, dp, w.Near, o); !a[0].Fresh || a[0].Mode != modeDispatcher {
		t.Errorf("attachment %+v, want a fresh one", a[0])
	}
	check("after the pin of the link was lost")

	x.run("xdp-filter", "unload", w.Near.Name)
	check("after xdp-filter has left")
	x.run("xdp-loader", "unload", w.Near.Name, "--all")
	if dp.Held() != 0 {
		t.Error("held after the dispatcher has left")
	}
	if a := attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true}); !a[0].Fresh || a[0].Mode != modeNative {
		t.Errorf("attachment %+v, want a native one", a[0])
	}
	check("after the dispatcher has left")
}

// Under traffic, the two sides change the dispatcher in turns, ten times.
func TestEachPacketCountsOnceWhileTheDispatcherChanges(t *testing.T) {
	w, x := dispatcherWire(t)
	dp := openTest(t, Options{MaxRules: 1024, PinDir: pinDir(t)})
	ids := floodRules(t, dp, 3)
	attach(t, dp, w.Near, AttachOptions{Ingress: true, Dispatcher: true})
	s := flood(t, w.Far, len(ids), 100, lab.SenderOptions{Rate: 2000})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, 1<<40) }()
	for i := range 5 {
		was := readOne(t, dp, ids[0]).Packets
		lab.Eventually(t, "packets between two changes", func() bool { return readOne(t, dp, ids[0]).Packets > was+50 })
		if err := dp.reloadTest(); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			x.run("xdp-loader", "load", "-m", "native", "-n", "xdp_pass", w.Near.Name, passObject)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	var sent, got []Pair
	for i, id := range ids {
		sent, got = append(sent, Pair(s.Sent()[i])), append(got, readOne(t, dp, id))
	}
	if !slices.Equal(got, sent) {
		t.Errorf("counted %d, want %d", got, sent)
	}
	t.Logf("sent %d, counted %d over 8 changes of the dispatcher", sent, got)
	if err := dp.Destroy(); err != nil {
		t.Fatal(err)
	}
	if got := x.components(); len(got) != 4 || slices.Contains(got, flowtallyProgFlowtallyXdp) {
		t.Errorf("components %v are left, want xdp-filter's and three", got)
	}
}

// reloadTest exchanges all programs.
func (dp *Datapath) reloadTest() error {
	dp.mu.Lock()
	defer dp.mu.Unlock()
	return dp.reload()
}

// Under traffic, an interface moves between TCX and a dispatcher, ten times each way. During a move, packets passed by xdp-filter may
// count twice. Between moves they count once.
func TestMoveToADispatcherMissesNoPacket(t *testing.T) {
	w, x := dispatcherWire(t)
	x.run("xdp-filter", "port", "1001", "-m", "src", "-p", "udp", "-r")
	dp := openTest(t, Options{MaxRules: 1024, PinDir: pinDir(t)})
	ids := floodRules(t, dp, 2)
	passed := behind(t, w.Near)
	if a := attach(t, dp, w.Near, AttachOptions{Ingress: true, Beside: true}); a[0].Mode != modeTCX {
		t.Fatalf("attachment %+v, want mode tcx", a[0])
	}
	s := flood(t, w.Far, len(ids), 100, lab.SenderOptions{Rate: 2000})
	counted := func() uint64 { return readOne(t, dp, ids[0]).Packets + readOne(t, dp, ids[1]).Packets }
	var twice uint64 // packets that the moves have counted twice
	for range 10 {
		for _, to := range []struct {
			mode string
			o    AttachOptions
		}{
			{modeDispatcher, AttachOptions{Ingress: true, Beside: true, Dispatcher: true, Retake: true}},
			{modeTCX, AttachOptions{Ingress: true, Mode: ModeTCX}},
		} {
			moveUnderTraffic(t, dp, w.Near, s, to.mode, to.o)
			if counted := counted(); counted < passed()+twice {
				t.Errorf("moved to %s: %d packets passed, %d of them counted", to.mode, passed(), counted-twice)
			}
			twice = counted() - passed()
			if err := errors.Join(s.Run(t.Context(), 200), s.Settle(t.Context())); err != nil {
				t.Fatal(err)
			}
			if counted, passed := counted(), passed(); counted != passed+twice {
				t.Errorf("%s: counted %d of %d packets, of them %d twice in the moves", to.mode, counted, passed, twice)
			}
		}
	}
	t.Logf("%d packets passed, %d of them counted twice in the moves", passed(), twice)
}

// An interface moves to another namespace, together with the dispatcher on its hook. Its packets must not count any more after the
// owner calls Detach, or after the next process starts.
func TestDispatcherOfAMovedInterfaceStopsCounting(t *testing.T) {
	for name, leave := range map[string]func(*Datapath, *lab.End) (*Datapath, error){
		"detach": func(dp *Datapath, e *lab.End) (*Datapath, error) { return dp, dp.Detach(e.Name) },
		"restart": func(dp *Datapath, e *lab.End) (next *Datapath, err error) {
			if err := dp.Close(); err != nil {
				return nil, err
			}
			err = e.NS.Do(func() (err error) {
				next, err = Open(Options{MaxRules: 1024, PinDir: dp.dir})
				return err
			})
			return next, err
		},
	} {
		t.Run(name, func(t *testing.T) { testMovedInterface(t, leave) })
	}
}

func testMovedInterface(t *testing.T, leave func(*Datapath, *lab.End) (*Datapath, error)) {
	t.Helper()
	w, x := dispatcherWire(t)
	dp := openTest(t, Options{MaxRules: 1024, PinDir: pinDir(t)})
	ids := floodRules(t, dp, 1)
	attach(t, dp, w.Near, AttachOptions{Ingress: true, Dispatcher: true})
	s := flood(t, w.Far, len(ids), 100, lab.SenderOptions{})
	send := func() {
		t.Helper()
		received := func() (n uint64) {
			if err := x.end.NS.Do(func() error {
				l, err := netlink.LinkByName(w.Near.Name)
				if err == nil {
					n = l.Attrs().Statistics.RxPackets
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return n
		}
		was := received()
		if err := s.Run(t.Context(), 3000); err != nil {
			t.Fatal(err)
		}
		lab.Eventually(t, "the packets received", func() bool { return received() >= was+3000 })
	}
	send()
	if got := readOne(t, dp, ids[0]).Packets; got != 3000 {
		t.Errorf("counted %d packets, want 3000", got)
	}
	to, err := netns.GetFromPath(w.Far.NS.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	l := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: w.Near.Name, Index: w.Near.Index}}
	if err := w.Near.NS.Do(func() error { return netlink.LinkSetNsFd(l, int(to)) }); err != nil {
		t.Fatal(err)
	}
	if dp, err = leave(dp, w.Near); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dp.Destroy() })
	x.end = &lab.End{NS: w.Far.NS, Name: w.Near.Name}
	if err := w.Far.NS.Do(func() error {
		l, err := netlink.LinkByName(w.Near.Name)
		if err == nil {
			err = netlink.LinkSetUp(l)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	send()
	if got := readOne(t, dp, ids[0]).Packets; got != 3000 {
		t.Errorf("counted %d packets, of them %d in another namespace", got, got-3000)
	}
}
