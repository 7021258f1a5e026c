package engine

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
)

// refusedBench is a bench on which a program of another owner has taken the hook that an instance held.
func refusedBench(t *testing.T) *bench {
	b := newBench(t, "native", flow.Flow{Name: "a", Match: match(t, "udp dport 1001")})
	b.cfg.XDP.KeepPins, b.cfg.Start = true, dataplane.StartDegraded
	b.cfg.XDP.Beside = []dataplane.Beside{dataplane.BesideRefuse}
	return b
}

func discontinuitiesOf(e *Engine, name string) uint64 {
	e.ctl.Lock()
	defer e.ctl.Unlock()
	return e.flows[name].past.Discontinuities
}

// free frees the hook, and waits until the instance counts on it again and says how often packets may be missing.
func (b *bench) free(t *testing.T, e *Engine, foreign link.Link, want uint64) {
	t.Helper()
	frames := lab.Stream{Frames: [][]byte{udpTo(1001, 60)}}
	b.send(t, 500, frames) // nothing counts them
	if err := foreign.Close(); err != nil {
		t.Fatal(err)
	}
	awaitCondition(t, e, "interface-refused", b.wire.Near.Name, false)
	sent := backend.Pair(b.send(t, 1000, frames)[0])
	await(t, reader(t, b.cfg), "a", backend.Add(sent, sent))
	lab.Eventually(t, "the discontinuity", func() bool { return discontinuitiesOf(e, "a") >= want })
	if n := discontinuitiesOf(e, "a"); n != want {
		t.Errorf("%d discontinuities, want %d", n, want)
	}
}

// While no process runs, another program takes the hook, and holds it over the next start.
func TestAHookThatWasTakenOverARestartIsOneDiscontinuity(t *testing.T) {
	b := refusedBench(t)
	e := b.start(t)
	await(t, reader(t, b.cfg), "a", backend.Pair(b.send(t, 1000, lab.Stream{Frames: [][]byte{udpTo(1001, 60)}})[0]))
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	detachByForce(t, b.cfg.XDP.PinDir, "link-*-xdp")
	foreign := occupy(t, b.wire.Near)
	b.cfg.XDP.KeepPins = false
	e = b.start(t)
	awaitCondition(t, e, "interface-refused", b.wire.Near.Name, true)
	b.free(t, e, foreign, 1)
}

// Another program holds the hook over the first start, and over the next one. No process has counted there: the flow, which
// counts from when the hook is free, has missed nothing.
func TestAHookThatWasNeverHeldIsNoDiscontinuity(t *testing.T) {
	b := refusedBench(t)
	foreign := occupy(t, b.wire.Near)
	frames := lab.Stream{Frames: [][]byte{udpTo(1001, 60)}}
	var e *Engine
	for range 2 {
		if e != nil {
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			b.cfg.XDP.KeepPins = false
		}
		e = b.start(t)
		awaitCondition(t, e, "interface-refused", b.wire.Near.Name, true)
		b.send(t, 500, frames)
	}
	if err := foreign.Close(); err != nil {
		t.Fatal(err)
	}
	awaitCondition(t, e, "interface-refused", b.wire.Near.Name, false)
	await(t, reader(t, b.cfg), "a", backend.Pair(b.send(t, 1000, frames)[0]))
	e.ctl.Lock()
	e.watcher.showSources()
	e.ctl.Unlock()
	if n := discontinuitiesOf(e, "a"); n != 0 {
		t.Errorf("%d discontinuities, want 0", n)
	}
}

// Another program takes the hook of a running instance. Meanwhile a flow needs the interface in another way too, or
// the flow gets a label.
func TestAHookThatWasTakenWhileFlowsChangedIsOneDiscontinuity(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, e *Engine) error{
		"another flow": func(t *testing.T, e *Engine) error {
			_, err := e.AddFlows(t.Context(), flow.Flow{Name: "out", Match: match(t, "udp"), Direction: flow.Egress})
			return err
		},
		"a label": func(t *testing.T, e *Engine) error {
			labelled := flow.Flow{Name: "a", Match: match(t, "udp dport 1001"), Labels: map[string]string{"x": "y"}}
			_, err := e.SetFlows(t.Context(), []flow.Flow{labelled}, dataplane.SetOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { testTakenHook(t, change) })
	}
}

func testTakenHook(t *testing.T, change func(t *testing.T, e *Engine) error) {
	t.Helper()
	b := refusedBench(t)
	b.cfg.XDP.KeepPins = false
	e := b.start(t)
	await(t, reader(t, b.cfg), "a", backend.Pair(b.send(t, 1000, lab.Stream{Frames: [][]byte{udpTo(1001, 60)}})[0]))
	foreign := takeHook(t, b.cfg.XDP.PinDir, b.wire.Near)
	awaitCondition(t, e, "interface-refused", b.wire.Near.Name, true)
	was := discontinuitiesOf(e, "a")
	if err := change(t, e); err != nil {
		t.Fatal(err)
	}
	b.free(t, e, foreign, was+1)
}

// A hook is lost and taken again while another interface, on which the flow is counted too, is missing.
func TestAHookThatWasLostBesideAMissingInterfaceIsOneDiscontinuity(t *testing.T) {
	b := refusedBench(t)
	b.cfg.XDP.KeepPins = false
	b.cfg.Interfaces = append(b.cfg.Interfaces, dataplane.Interface{Name: lab.Unique("no")})
	e := b.start(t)
	await(t, reader(t, b.cfg), "a", backend.Pair(b.send(t, 1000, lab.Stream{Frames: [][]byte{udpTo(1001, 60)}})[0]))
	detachByForce(t, b.cfg.XDP.PinDir, "link-*-xdp")
	lab.Eventually(t, "the discontinuity", func() bool { return discontinuitiesOf(e, "a") == 1 })
}

// An instance ends after a hook was lost and taken again, and before its watcher has looked.
func TestAHookThatWasLostBeforeTheEndIsOneDiscontinuity(t *testing.T) {
	b := refusedBench(t)
	e := b.start(t)
	x := e.backends[0].(*xdp.Backend)
	e.ctl.Lock() // the watcher waits for the next second
	was := x.Now()
	detachByForce(t, b.cfg.XDP.PinDir, "link-*-xdp")
	lab.Eventually(t, "the hook taken again", func() bool { return x.Now() > was })
	e.ctl.Unlock()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	b.cfg.XDP.KeepPins = false
	if n := discontinuitiesOf(b.start(t), "a"); n != 1 {
		t.Errorf("%d discontinuities, want 1", n)
	}
}

// Another program takes the hook of an interface of a pattern, and packets pass there uncounted. Then the interface is
// deleted, and made again. The flow declares the packets once, also if its process ends before the interface goes, or if
// the program came while no process ran.
func TestAnInterfaceThatGoesWithARefusedHookIsDeclaredOnce(t *testing.T) {
	for name, c := range map[string]struct {
		beside        bool // another interface is counted on
		before, after bool // the process ends before the hook is taken, after it
	}{
		"the only interface": {}, "one of two": {beside: true},
		"taken while no process runs": {true, true, false}, "the process ends meanwhile": {true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, func(cfg *dataplane.Config) {
				refuseBeside(cfg)
				cfg.Start, cfg.XDP.KeepPins = dataplane.StartDegraded, c.before || c.after
			}, dataplane.Interface{Name: "eth*", Mode: dataplane.ModeNative})
			eth0, names := h.plug(t, "eth0"), []string{"eth0"}
			if c.beside {
				h.plug(t, "eth1")
				names = append(names, "eth1")
			}
			h.run(t)
			h.counted(t, eth0.B)
			end := func(is bool) {
				t.Helper()
				if is {
					if err := h.e.Close(); err != nil {
						t.Fatal(err)
					}
					h.cfg.XDP.KeepPins = false
				}
			}
			end(c.before)
			takeHook(t, h.cfg.XDP.PinDir, eth0.A)
			if c.before {
				h.run(t)
			}
			h.condition(t, true, dataplane.CodeInterfaceRefused, "eth0")
			x := h.e.backends[0].(*xdp.Backend)
			lab.Eventually(t, "the outage", func() bool {
				_, open := x.Outage(backend.Placed{Flow: flow.Flow{Name: "a"}})
				return open
			})
			was := h.discontinuities()
			h.sendTo(t, eth0.B, 500) // nothing counts them
			end(c.after)
			if err := eth0.Close(); err != nil {
				t.Fatal(err)
			}
			if c.after {
				h.run(t)
			}
			h.condition(t, false, dataplane.CodeInterfaceRefused, "eth0")
			eth0 = h.plug(t, "eth0")
			h.devices(t, "a", names...)
			h.counted(t, eth0.B)
			lab.Eventually(t, "the discontinuity", func() bool { return h.discontinuities() > was })
			if n := h.discontinuities(); n != was+1 {
				t.Errorf("%d discontinuities, and %d before 500 packets passed uncounted", n, was)
			}
		})
	}
}

// takeHook gives the hook of XDP on an interface, which an instance holds or held, to another program.
func takeHook(t *testing.T, pins string, e *lab.End) (foreign link.Link) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); foreign == nil; { // an instance takes its hook back within 20 ms
		if err := tryDetachOn(pins, "link-*-xdp", e.Index); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		foreign, _ = tryOccupy(e)
		if time.Now().After(end) {
			t.Fatal("the hook was never free")
		}
	}
	t.Cleanup(func() { foreign.Close() })
	return foreign
}
