package engine

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/shm"
)

// kill ends an instance, and leaves the mirror and the state beside the pins as a kill at this moment does. The caller holds
// Engine.ctl, which kill releases.
func (b *bench) kill(t *testing.T, e *Engine) {
	t.Helper()
	var mirror []byte
	stop := errors.New("nothing changes")
	err := e.plan.ChangeSource(e.flows["a"].handle, func(backend.Pair) (c backend.Counters, id uint32, p backend.Pair, err error) {
		if mirror, err = os.ReadFile(b.cfg.Mirror.Path); err == nil { // between two cycles of the poller
			err = stop
		}
		return c, id, p, err
	})
	if err != stop {
		t.Fatal(err)
	}
	var again []func() error
	for _, name := range []string{"meta", "ledger"} {
		m, err := ebpf.LoadPinnedMap(filepath.Join(b.cfg.XDP.PinDir, name), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		state, err := m.LookupBytes(uint32(0))
		if err != nil {
			t.Fatal(err)
		}
		again = append(again, func() error { return m.Put(uint32(0), state) })
	}
	e.ctl.Unlock()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(b.cfg.Mirror.Path, mirror, 0o644), again[0](), again[1]()); err != nil {
		t.Fatal(err)
	}
}

// An instance is killed after it has attached to a hook. If the hook was lost before, the next instance declares that, unless
// the killed one has. A control call that is under way delays the declaration.
func TestALostHookIsDeclaredOnceOverAKill(t *testing.T) {
	b := refusedBench(t)
	start := func(want uint64) *Engine {
		t.Helper()
		e := b.start(t)
		e.ctl.Lock()
		if n := e.flows["a"].past.Discontinuities; n != want {
			t.Errorf("%d discontinuities, want %d", n, want)
		}
		return e
	}
	e := start(0)
	b.kill(t, e) // no hook was lost
	e = start(0)
	lose := func() {
		t.Helper()
		x := e.backends[0].(*xdp.Backend)
		was := x.Now()
		detachByForce(t, b.cfg.XDP.PinDir, "link-*-xdp")
		lab.Eventually(t, "the hook taken again", func() bool { return x.Now().After(was) })
	}
	lose()
	b.kill(t, e)
	e = start(1)
	b.kill(t, e) // it has declared the loss
	e = start(1)
	e.ctl.Unlock()
	lose()
	lab.Eventually(t, "the discontinuity", func() bool { return discontinuitiesOf(e, "a") == 2 })
	e.ctl.Lock()
	b.kill(t, e)
	start(2).ctl.Unlock()
}

// A discontinuity that cannot be written is written by the next look.
func TestADiscontinuityThatCannotBeWrittenIsWrittenLater(t *testing.T) {
	b := refusedBench(t)
	b.cfg.XDP.KeepPins = false
	e := b.start(t)
	e.ctl.Lock()
	defer e.ctl.Unlock()
	x := e.backends[0].(*xdp.Backend)
	was := x.Now()
	detachByForce(t, b.cfg.XDP.PinDir, "link-*-xdp")
	lab.Eventually(t, "the hook taken again", func() bool { return x.Now().After(was) })

	a := e.flows["a"]
	handle := a.handle
	a.edit().handle = shm.Handle{}
	e.watcher.showSources()
	if n := a.past.Discontinuities; n != 0 {
		t.Errorf("%d discontinuities, and none was written", n)
	}
	a.edit().handle = handle
	e.watcher.showSources()
	if n := a.past.Discontinuities; n != 1 {
		t.Errorf("%d discontinuities, want 1", n)
	}
}

// A kill ends an instance after a move between XDP and TCX, before the mirror declares the move. The next instance declares
// the move once, even if it moves the interface back.
func TestNextInstanceDeclaresAKilledMoveOnce(t *testing.T) {
	need.TCX(t)
	for _, next := range []dataplane.Mode{dataplane.ModeTCX, dataplane.ModeNative} {
		t.Run("next "+string(next), func(t *testing.T) {
			b := refusedBench(t)
			e := b.start(t)
			x := e.backends[0].(*xdp.Backend)
			was := x.Now()

			e.ctl.Lock() // a control call delays the declaration
			err := x.SetInterfaces([]dataplane.Interface{{Name: b.wire.Near.Name, Mode: dataplane.ModeTCX}})
			if err != nil {
				t.Fatal(err)
			}
			if last, _ := x.Outage(e.flows["a"].Placed); !last.After(was) {
				t.Error("the move is no outage")
			}
			b.kill(t, e)

			b.cfg.Interfaces[0].Mode = next
			m := newMoving(t, b, b.start(t))
			m.moves = 1
			m.exact("after the next start")
		})
	}
}
