package engine

import (
	"context"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/times"
	kernel "github.com/flowtally/flowtally/xdp"
)

// An instance counts behind a program on the XDP hook, says so while that program is there, and no longer when it has left.
// Every packet that it passes is counted.
func TestBesideAnotherProgram(t *testing.T) {
	need.TCX(t)
	b := newBench(t, "auto", flow.Flow{Name: "a", Match: match(t, "udp dport 1001")}, flow.Flow{Name: "dropped", Match: match(t, "udp dport 1002"), Action: flow.Drop})
	foreign := occupy(t, b.wire.Near)
	e := b.start(t)
	c := awaitCondition(t, e, "xdp-beside", b.wire.Near.Name, true)
	if c.Severity != dataplane.Medium || !strings.Contains(c.Text, "foreign") || !strings.Contains(c.Fix, "bpftool link detach id") {
		t.Errorf("condition %+v", c)
	}
	frames := []lab.Stream{{Frames: [][]byte{udpTo(1001, 60)}}, {Frames: [][]byte{udpTo(1002, 60)}}}
	var total [2]backend.Pair
	send := func() {
		t.Helper()
		for i, sent := range b.send(t, 2000, frames...) {
			total[i] = backend.Add(total[i], backend.Pair(sent))
		}
		await(t, reader(t, b.cfg), "a", total[0])
		await(t, reader(t, b.cfg), "dropped", total[1])
	}
	send()
	if err := foreign.Close(); err != nil {
		t.Fatal(err)
	}
	awaitCondition(t, e, "xdp-beside", b.wire.Near.Name, false)
	send()
	foreign = occupy(t, b.wire.Near)
	awaitCondition(t, e, "xdp-beside", b.wire.Near.Name, true)
	send()
	placed, err := e.Placements(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := placed[0].Source.String(), "xdp:"+b.wire.Near.Name+"/tcx"; got != want {
		t.Errorf("counted by %s, want %s", got, want)
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

// The mode of an interface changes between native and tcx under traffic, ten times each way, and another program takes the
// hook in between. Every packet that reaches the stack is counted once: a rule set of its own counts them, behind. A veth drops
// packets when XDP comes or goes.
func TestModeChangesUnderTraffic(t *testing.T) {
	need.TCX(t)
	b := newBench(t, "native", flow.Flow{Name: "a", Match: match(t, "udp dport 1001")})
	e := b.start(t)
	s, err := b.wire.Far.NewSender([]lab.Stream{{Frames: [][]byte{udpTo(1001, 60)}}}, lab.SenderOptions{Rate: 20_000})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	passed := passedBehind(t, b.wire.Near)
	go func() { done <- s.Run(ctx, 1<<40) }()
	set := func(mode dataplane.Mode) {
		t.Helper()
		file := b.cfg
		file.Flows = nil
		file.Interfaces = []dataplane.Interface{{Name: b.wire.Near.Name, Mode: mode}}
		if _, err := e.SetFlows(t.Context(), nil, dataplane.SetOptions{KeepOthers: true, Config: &file}); err != nil {
			t.Fatal(err)
		}
		lab.Eventually(t, "the source is "+string(mode), func() bool {
			placed, err := e.Placements(t.Context())
			return err == nil && placed[0].Source.Modes() == string(mode)
		})
	}
	was := e.backends[0].(*xdp.Backend).Inspect().Epochs
	for range times.Brief(10, 2) {
		set(dataplane.ModeTCX)
		if err := occupy(t, b.wire.Near).Close(); err != nil {
			t.Fatal(err)
		}
		set(dataplane.ModeNative)
	}
	if now := e.backends[0].(*xdp.Backend).Inspect().Epochs; now != was {
		t.Errorf("%d epochs have begun, want none", now-was)
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := passed()
	await(t, reader(t, b.cfg), "a", backend.Pair{Packets: n, Bytes: 60 * n})
	t.Logf("%d packets over the changes, each counted once", n)
}
