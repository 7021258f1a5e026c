package e2e

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/plugin"
	"github.com/flowtally/flowtally/shm"
)

// linkPause is how long the plugin stays dead after a kill: time to change links.
const linkPause = time.Second

// links is a plugin that counts on one interface, which the test takes away,
// renames and brings back.
type links struct {
	*bench
	t         *testing.T
	near, ns  *lab.Netns
	pair      *lab.Pair
	name, far string
	sent      lab.Tally
}

func newLinks(t *testing.T) *links {
	t.Helper()
	near, err := lab.CurrentNetns()
	if err != nil {
		t.Fatal(err)
	}
	ns, err := lab.NewNetns("")
	if err != nil {
		t.Fatal(err)
	}
	l := &links{t: t, near: near, ns: ns, name: lab.Unique("lnk"), far: lab.Unique("far")}
	t.Cleanup(func() {
		l.remove()
		ns.Close()
		near.Close()
	})
	l.plug()
	cfg := dataplane.Config{
		Instance: lab.Unique("e2e-"), Backend: "xdp", Interfaces: []dataplane.Interface{{Name: l.name, Mode: dataplane.ModeNative}},
		Flows: []flow.Flow{
			{Name: "in", Match: match(t, "udp dport 53")},
			{Name: "out", Match: match(t, "udp"), Direction: flow.Egress},
		},
	}
	c, err := plugin.Launch(t.Context(), plugin.Options{
		Path: binary(t, "flowtally-plugin"), Config: cfg, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		RestartMin: linkPause, RestartMax: linkPause, StartTimeout: patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	info, err := c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		pins := filepath.Join("/sys/fs/bpf/flowtally", cfg.Instance)
		if _, err := os.Stat(pins); err == nil {
			t.Errorf("%s is left", pins)
			os.RemoveAll(pins)
		}
		for _, path := range shm.Files(info.Mirror) {
			os.Remove(path)
		}
	})
	l.bench = &bench{client: c, info: info}
	return l
}

// plug makes the pair, under the names that it always has.
func (l *links) plug() {
	l.t.Helper()
	var err error
	if l.pair, err = lab.NewPair(l.near, l.ns, l.name, l.far, lab.PairOptions{}); err != nil {
		l.t.Fatal(err)
	}
}

func (l *links) link(name string) netlink.Link {
	l.t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		l.t.Fatal(err)
	}
	return link
}

func (l *links) remove() {
	if link, err := netlink.LinkByName(l.name); err == nil {
		if err := netlink.LinkDel(link); err != nil {
			l.t.Error(err)
		}
	}
}

func (l *links) rename(from, to string) {
	l.t.Helper()
	link := l.link(from)
	for _, step := range []func() error{
		func() error { return netlink.LinkSetDown(link) },
		func() error { return netlink.LinkSetName(link, to) },
		func() error { return netlink.LinkSetUp(link) },
	} {
		if err := step(); err != nil {
			l.t.Fatal(err)
		}
	}
	l.carrier(to)
}

// carrier waits until frames pass again.
func (l *links) carrier(name string) {
	l.t.Helper()
	for end := time.Now().Add(patience); l.link(name).Attrs().OperState != netlink.OperUp; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			l.t.Fatalf("%s does not come up", name)
		}
	}
}

// send sends n frames; those that reach a program that is attached count as sent.
func (l *links) send(n uint64, attached bool) {
	l.t.Helper()
	ip := frame.IPv4{Src: frame.Addr("198.51.100.9"), Dst: frame.Addr("192.0.2.10")}
	s, err := l.pair.B.NewSender([]lab.Stream{{Frames: [][]byte{frame.Sized(80, eth, ip, frame.UDP{Src: 4000, Dst: 53})}}}, lab.SenderOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	defer s.Close()
	if err := s.Run(l.t.Context(), n); err != nil {
		l.t.Fatal(err)
	}
	if err := s.Settle(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	if attached {
		l.sent.Packets += s.Sent()[0].Packets
		l.sent.Bytes += s.Sent()[0].Bytes
	}
}

func (l *links) exact() {
	l.t.Helper()
	if got := final(l.t, l.bench, "in"); got != l.sent {
		l.t.Fatalf("counted %+v, sent %+v", got, l.sent)
	}
	problems, err := shm.Check(l.info.Mirror)
	if err != nil || len(problems) > 0 {
		l.t.Errorf("check: %v %v", problems, err)
	}
}

// state waits until the plugin runs, its only condition is code (none if code is "") and the flow
// is counted on device with mode.
func (l *links) state(code, device, mode string) {
	l.t.Helper()
	var codes []string
	var source dataplane.Source
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		conditions, err := l.client.Conditions(l.t.Context())
		if err != nil {
			continue
		}
		codes = nil
		for _, c := range conditions {
			if c.Code != "poll-overrun" { // other tests, on the same machine
				codes = append(codes, string(c.Code))
			}
		}
		placed, err := l.client.Placements(l.t.Context())
		if err != nil || len(placed) == 0 {
			continue
		}
		source = placed[0].Source
		if slices.Equal(codes, strings.Fields(code)) && source.DeviceNames() == device && source.Modes() == mode {
			return
		}
	}
	l.t.Fatalf("conditions %q, source %+v; want %q and %s/%s", codes, source, code, device, mode)
}

// counting waits until the plugin says that it counts, and the kernel that it does so on the
// interface that has the name now: of one that was replaced, the plugin may not know yet.
func (l *links) counting() {
	l.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if x := l.link(l.name).Attrs().Xdp; x != nil && x.Attached {
			break
		}
		if time.Now().After(end) {
			l.t.Fatalf("no program is attached to %s", l.name)
		}
	}
	l.state("", l.name, "native")
}

// kill ends the plugin as hard as can be. It is back after linkPause.
func (l *links) kill() {
	l.t.Helper()
	pid, ok := nextPID(l.t.Context(), l.client, 0)
	if !ok {
		l.t.Fatal("no plugin to kill")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		l.t.Fatal(err)
	}
	for info := (dataplane.Info{PID: pid}); info.PID == pid; time.Sleep(time.Millisecond) { // 0, or its successor's
		info, _ = l.client.Info(l.t.Context())
	}
}

// A change of the interface loses only packets that never reached a program. No process is restarted.
func TestLinksThatComeAndGoLoseOnlyPacketsThatReachedNoProgram(t *testing.T) {
	needLab(t)
	l := newLinks(t)
	on := func(n uint64) { l.t.Helper(); l.counting(); l.send(n, true); l.exact() }
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"removed and back", func() {
			before := l.link(l.name).Attrs().Index
			l.remove()
			l.state("interface-missing", "", "")
			l.exact()
			l.plug()
			if l.link(l.name).Attrs().Index == before {
				t.Log("the same index: not what this step is about")
			}
		}},
		{"replaced at once", func() {
			for range 5 {
				l.remove()
				l.plug()
			}
		}},
		{"flaps", func() {
			for range 3 {
				for _, set := range []func(netlink.Link) error{netlink.LinkSetDown, netlink.LinkSetUp} {
					if err := set(l.link(l.name)); err != nil {
						t.Fatal(err)
					}
				}
			}
			l.carrier(l.name)
		}},
		{"flaps in traffic", l.flapFarEnd},
		{"renamed and back", func() {
			l.rename(l.name, "away")
			l.state("interface-missing", "", "")
			l.send(500, false)
			l.exact()
			l.rename("away", l.name)
		}},
		{"replaced while the plugin is dead", func() {
			l.kill()
			l.send(700, true) // the kernel counts on
			l.remove()
			l.plug()
		}},
		{"gone while the plugin is dead", func() {
			l.kill()
			l.remove()
			l.state("interface-missing", "", "")
			l.exact()
			l.plug()
		}},
		{"renamed while the plugin is dead", func() {
			l.kill()
			l.send(300, true)
			l.rename(l.name, "away")
			l.state("interface-missing", "", "")
			l.send(500, false)
			l.exact()
			l.rename("away", l.name)
		}},
		{"another one under its name", func() {
			l.remove()
			l.state("interface-missing", "", "")
			bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: l.name}} // knows no XDP of its own
			if err := netlink.LinkAdd(bridge); err != nil {
				t.Logf("no bridges here, so no interface without native XDP: %v", err)
			} else {
				l.state("interface-refused", "", "")
				l.remove()
				l.state("interface-missing", "", "")
			}
			l.plug()
		}},
		{"in and out of a bridge", l.bridged},
		{"a flow the other way while it is gone", func() {
			l.remove()
			l.state("interface-missing", "", "")
			if _, err := l.client.AddFlows(t.Context(), flow.Flow{Name: "more", Match: match(t, "tcp"), Direction: flow.Egress}); err != nil {
				t.Fatal(err)
			}
			l.plug()
		}},
	} {
		t.Logf("%s, after %+v", step.name, l.sent)
		on(1000)
		step.do()
		on(1000)
	}
	if n := l.client.Restarts(); n != 3 {
		t.Errorf("the plugin was restarted %d times, for 3 kills", n)
	}
}

// flapFarEnd sends over a link whose other end goes down and up: every packet that the kernel
// accepted is counted.
func (l *links) flapFarEnd() {
	ip := frame.IPv4{Src: frame.Addr("198.51.100.9"), Dst: frame.Addr("192.0.2.10")}
	s, err := l.pair.B.NewSender([]lab.Stream{{Frames: [][]byte{frame.Sized(80, eth, ip, frame.UDP{Src: 4000, Dst: 53})}}}, lab.SenderOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	defer s.Close()
	for range 5 {
		ctx, stop := context.WithCancel(l.t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx, 0) }()
		time.Sleep(20 * time.Millisecond)
		err := l.ns.Do(func() error { return netlink.LinkSetDown(l.link(l.far)) })
		if err != nil {
			l.t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
		stop()
		<-ended // that the network is down
		if err := l.ns.Do(func() error { return netlink.LinkSetUp(l.link(l.far)) }); err != nil {
			l.t.Fatal(err)
		}
		l.carrier(l.name)
	}
	if err := s.Settle(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	l.sent.Packets += s.Sent()[0].Packets
	l.sent.Bytes += s.Sent()[0].Bytes
}

// bridged makes the interface a port of a bridge for a while. The kernel tells of
// the end of that as of a link that went.
func (l *links) bridged() {
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: lab.Unique("br")}}
	if err := netlink.LinkAdd(bridge); err != nil {
		l.t.Logf("no bridges here: %v", err)
		return
	}
	defer netlink.LinkDel(bridge)
	for range 3 {
		if err := netlink.LinkSetMaster(l.link(l.name), bridge); err != nil {
			l.t.Fatal(err)
		}
		l.send(100, true)
		if err := netlink.LinkSetNoMaster(l.link(l.name)); err != nil {
			l.t.Fatal(err)
		}
		l.send(100, true)
	}
}
