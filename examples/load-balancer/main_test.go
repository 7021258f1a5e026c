//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/plugin"
	"github.com/flowtally/flowtally/shm"
)

// The test binary is its own plugin, so that the example runs over a real process
// boundary where nothing is installed.
const pluginEnv = "FLOWTALLY_TEST_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(pluginEnv) != "" {
		os.Exit(plugin.Serve(plugin.ServeOptions{Factory: open}))
	}
	os.Exit(m.Run())
}

func open(ctx context.Context, cfg dataplane.Config, l *slog.Logger) (dataplane.Service, error) {
	e, err := engine.New(ctx, cfg, engine.Options{Logger: l})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// config counts traffic that does not exist: the n-th flow n times 1000 packets a
// second. So it takes no privilege.
func config(t *testing.T) dataplane.Config {
	return dataplane.Config{
		Instance: "balancer", Backend: "sim",
		Mirror: dataplane.MirrorConfig{Path: filepath.Join(t.TempDir(), "balancer.mirror"), History: -1},
		Poll:   dataplane.PollConfig{Period: time.Millisecond},
	}
}

func addrs(texts ...string) (out []netip.Addr) {
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// The whole program, with a plugin in a process of its own.
func TestBalancerSpreadsPacketsByTheMirror(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	opts := plugin.Options{Path: self, Env: []string{pluginEnv + "=1"}, Config: config(t), Stderr: t.Output()}
	const share = 50
	if err := run(patient(t), &out, opts, addrs("192.0.2.1", "2001:db8::2"), share); err != nil {
		t.Fatal(err)
	}
	want := `to-192.0.2.1: counted by sim
to-2001:db8::2: counted by sim
to-192.0.2.1: has had its 50 packets
to-2001:db8::2: has had its 50 packets
`
	said, next, _ := strings.Cut(out.String(), "next: ")
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("want -, printed +:\n%s", diff)
	}
	if next != "to-192.0.2.1\n" && next != "to-2001:db8::2\n" {
		t.Errorf("the next one is %q", next)
	}
	// The last values are there when the program is not any more.
	r, err := shm.OpenReader(opts.Config.Mirror.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, name := range []string{"to-192.0.2.1", "to-2001:db8::2"} {
		h, err := r.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := r.Wait(t.Context(), h, share); err != nil {
			t.Errorf("%s has %d packets: %v", name, v.Packets, err)
		}
	}
}

// started is a balancer over three servers of which the first has had the fewest
// packets, and has from then on: the others get more a second.
func started(t *testing.T) (*balancer, dataplane.Service) {
	t.Helper()
	ctx := patient(t)
	svc, err := open(ctx, config(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBalancer(ctx, svc, addrs("192.0.2.1", "192.0.2.2", "192.0.2.3"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
		if err := svc.Close(); err != nil {
			t.Error(err)
		}
	})
	for counts := [3]uint64{}; counts[0] == 0 || counts[0] >= counts[1] || counts[1] >= counts[2]; {
		// The last first: of the values of one cycle, or of later ones.
		for i := 2; i >= 0; i-- {
			v, err := b.wait(ctx, &b.servers[i], counts[i])
			if err != nil {
				t.Fatal(err)
			}
			counts[i] = v.Packets
		}
	}
	return b, svc
}

func wantPick(t *testing.T, b *balancer, want string) {
	t.Helper()
	s, err := b.pick()
	if err != nil || s.name != want {
		t.Errorf("picked %+v, %v; want %s", s, err, want)
	}
}

// grow adds more flows than one segment of the mirror holds.
func grow(t *testing.T, svc dataplane.Service) {
	t.Helper()
	var more []flow.Flow
	for i := range shm.SegmentLen {
		match, err := flow.ParseMatch(fmt.Sprintf("udp dport %d", i+1))
		if err != nil {
			t.Fatal(err)
		}
		more = append(more, flow.Flow{Name: fmt.Sprintf("more-%d", i), Match: match})
	}
	if _, err := svc.AddFlows(t.Context(), more...); err != nil {
		t.Fatal(err)
	}
}

// The server with the fewest packets is picked, without allocation: also when the mirror has grown,
// and when the counting process has ended.
func TestPickReturnsTheLeastLoadedServerWithoutAllocation(t *testing.T) {
	b, svc := started(t)
	wantPick(t, b, "to-192.0.2.1")
	grow(t, svc)
	wantPick(t, b, "to-192.0.2.1")

	if err := svc.Close(); err != nil {
		t.Fatal(err)
	}
	b.servers[0], b.servers[2] = b.servers[2], b.servers[0]
	wantPick(t, b, "to-192.0.2.1")
	if n := testing.AllocsPerRun(100, func() { _, _ = b.pick() }); n != 0 {
		t.Errorf("%v allocations per pick", n)
	}
}

// A wait goes on in a mirror that has grown.
func TestWaitContinuesInAGrownMirror(t *testing.T) {
	b, svc := started(t)
	grow(t, svc)
	before, err := b.servers[0].sent.Load()
	if err != nil {
		t.Fatal(err)
	}
	v, err := b.wait(patient(t), &b.servers[0], before.Packets+10)
	if err != nil || v.Packets < before.Packets+10 {
		t.Errorf("%d packets behind %d, %v", v.Packets, before.Packets, err)
	}
	if now, err := b.servers[0].sent.Load(); err != nil || now.Packets < v.Packets {
		t.Errorf("%d packets after %d, %v", now.Packets, v.Packets, err)
	}
}

// A mirror that is removed is made anew by the process that counts. Picks and waits go on there.
func TestPicksAndWaitsFollowAMirrorMadeAgain(t *testing.T) {
	b, svc := started(t)
	info, err := svc.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first := &b.servers[0]
	for range 3 {
		was := b.mirror.Reader()
		before, err := first.sent.Load()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(info.Mirror); err != nil {
			t.Fatal(err)
		}
		more := uint64(1)
		for ; b.mirror.Reader() == was; more++ {
			if _, err := b.wait(patient(t), first, before.Packets+more); err != nil {
				t.Fatal(err)
			}
		}
		for i := range b.servers { // in the new file too: the totals went on
			if _, err := b.wait(patient(t), &b.servers[i], before.Packets+more); err != nil {
				t.Fatal(err)
			}
		}
		wantPick(t, b, "to-192.0.2.1")
	}
}
