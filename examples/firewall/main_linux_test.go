package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/shm"
)

func TestMain(m *testing.M) {
	_ = lab.Isolate(lab.ForTests) // without the privilege, the test names the privilege that it needs
	os.Exit(m.Run())
}

// output holds the lines of the program, and the test reads them meanwhile.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// TestABannedFlowIsOutWhenTheCallReturns runs the firewall under traffic of three flows: one is dropped from the start,
// one reaches the limit and is banned, and one stays below it. No packet of the banned flow passes after the line that
// the program prints when its call has returned. Each packet is counted once, and none of the flow that stays is lost.
func TestABannedFlowIsOutWhenTheCallReturns(t *testing.T) {
	need.Netns(t)
	need.BPF(t)
	const dropped, guests, friends, limit = 7000, 7001, 7002, 2000
	wire, err := lab.NewWire(lab.WireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := wire.Close(); err != nil {
			t.Error(err)
		}
	}()
	var svc dataplane.Service
	err = wire.Near.NS.Do(func() (err error) {
		svc, err = engine.New(t.Context(), dataplane.Config{
			Instance: lab.Unique("fw-"), Backend: "xdp", Interfaces: []dataplane.Interface{{Name: wire.Near.Name, Mode: "native"}},
			Mirror: dataplane.MirrorConfig{Path: t.TempDir() + "/firewall.mirror"}, XDP: dataplane.XDPConfig{PinDir: need.BPFFS(t) + "/firewall"},
		}, engine.Options{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	rules := []flow.Flow{
		flow.MustParse("scanner", fmt.Sprint("tcp dport ", dropped), flow.Options{Action: flow.Drop}),
		flow.MustParse("guests", fmt.Sprint("tcp dport ", guests)),
		flow.MustParse("friends", fmt.Sprint("tcp dport ", friends)),
	}
	watch := func(port uint16) *lab.Observer {
		t.Helper()
		o, err := wire.Near.Observe(port, false)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	before, scanned, stayed := watch(guests), watch(dropped), watch(friends)

	var out output
	ctx, end := context.WithCancel(t.Context())
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, &out, svc, rules, limit) }()
	placed := func() bool {
		list, err := svc.Placements(t.Context())
		return err == nil && len(list) == len(rules)
	}
	lab.Eventually(t, "the rules to be set", placed)

	to := func(port uint16) [][]byte {
		return [][]byte{frame.Sized(90, frame.Eth{Dst: [6]byte{2, 0, 0, 0, 0, 1}, Src: [6]byte{2, 0, 0, 0, 0, 2}},
			frame.IPv4{Src: frame.Addr("198.51.100.1"), Dst: frame.Addr("192.0.2.2")}, frame.TCP{Src: 1, Dst: port})}
	}
	// Of 45 packets one is a friend's: the friends reach the limit 20 s after the guests.
	snd, err := wire.Far.NewSender([]lab.Stream{
		{Name: "scanner", Frames: to(dropped), Weight: 4}, {Name: "guests", Frames: to(guests), Weight: 40}, {Name: "friends", Frames: to(friends), Weight: 1},
	}, lab.SenderOptions{Rate: 5000, Batch: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer snd.Close()
	sending, enough := context.WithCancel(t.Context())
	defer enough()
	sent := make(chan error, 1)
	go func() { sent <- snd.Run(sending, 0) }()

	lab.Eventually(t, "the ban", func() bool { return strings.Contains(out.String(), "~ guests: count -> drop\n") })
	after := watch(guests) // sees each packet that passes from here on
	at := snd.Sent()[1].Packets
	lab.Eventually(t, "packets after the ban", func() bool { return snd.Sent()[1].Packets >= at+2000 })
	enough()
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if err := snd.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	total := snd.Sent()
	passed := func(o *lab.Observer) uint64 {
		t.Helper()
		tally, err := o.Stop()
		if err != nil {
			t.Fatal(err)
		}
		return tally.Packets
	}
	late, early, scans, others := passed(after), passed(before), passed(scanned), passed(stayed)
	if late != 0 || early < limit || early >= total[1].Packets || scans != 0 || others != total[2].Packets {
		t.Errorf("of %d guests %d passed, %d of them after the ban; of %d scanners %d; of %d friends %d",
			total[1].Packets, early, late, total[0].Packets, scans, total[2].Packets, others)
	}
	info, err := svc.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mirror, err := shm.OpenPath(info.Mirror)
	if err != nil {
		t.Fatal(err)
	}
	defer mirror.Close()
	for i, r := range rules {
		var v shm.Value
		c, err := mirror.Counter(r.Name)
		if err != nil {
			t.Fatal(err)
		}
		lab.Eventually(t, "the count of "+r.Name, func() bool {
			v, err = c.Load()
			return err == nil && v.Packets >= total[i].Packets
		})
		if v.Packets != total[i].Packets || v.Bytes != total[i].Bytes {
			t.Errorf("%s: counted %d packets of %d bytes, sent %+v", r.Name, v.Packets, v.Bytes, total[i])
		}
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	t.Logf("guests: sent %d, passed %d before the ban and %d after it; scanners: sent %d, passed %d; friends: sent %d, passed %d; all counted once",
		total[1].Packets, early, late, total[0].Packets, scans, total[2].Packets, others)
}

// TestFirewallEndsIfItsInterfaceDoesNotExist: the firewall ends with the reason, and does not run without a packet to look at.
func TestFirewallEndsIfItsInterfaceDoesNotExist(t *testing.T) {
	need.Netns(t)
	need.BPF(t)
	wire, err := lab.NewWire(lab.WireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer wire.Close()
	err = wire.Near.NS.Do(func() error {
		svc, err := engine.New(t.Context(), dataplane.Config{
			Instance: lab.Unique("fw-"), Backend: "xdp", Interfaces: []dataplane.Interface{{Name: "eth9"}},
			Mirror: dataplane.MirrorConfig{Path: t.TempDir() + "/firewall.mirror"}, XDP: dataplane.XDPConfig{PinDir: need.BPFFS(t) + "/firewall"},
			Flows: []flow.Flow{flow.MustParse("guests", "tcp dport 80")}, // as main has them
		}, engine.Options{})
		if err == nil {
			return svc.Close()
		}
		return err
	})
	if !errors.Is(err, dataplane.ErrUnplaced) {
		t.Errorf("the start: %v", err)
	}
}
