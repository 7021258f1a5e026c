package engine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/shm"
	kernel "github.com/flowtally/flowtally/xdp"
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
	meta, err := ebpf.LoadPinnedMap(filepath.Join(b.cfg.XDP.PinDir, "meta"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer meta.Close()
	state, err := meta.LookupBytes(uint32(0))
	if err != nil {
		t.Fatal(err)
	}
	e.ctl.Unlock()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(b.cfg.Mirror.Path, mirror, 0o644), meta.Put(uint32(0), state)); err != nil {
		t.Fatal(err)
	}
}

// gap reports whether a kill now would be declared.
func gap(e *Engine) bool {
	all := e.backends[0].(*xdp.Backend).Inspect().Rules.Attachments()
	return slices.ContainsFunc(all, func(a kernel.Attachment) bool { return a.Gap })
}

// An instance is killed after it has attached to a hook. If the hook was lost before, the next instance declares that, unless
// the killed one has. A control call that is under way delays the declaration.
func TestAKillAfterAHookWasTakenAgain(t *testing.T) {
	b := refusedBench(t)
	start := func(want uint64) *Engine {
		t.Helper()
		e := b.start(t)
		lab.Eventually(t, "the note of the gap removed", func() bool { return !gap(e) })
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
		was := e.backends[0].(*xdp.Backend).Inspect().Epochs
		detachByForce(t, b.cfg.XDP.PinDir, "link-*-xdp")
		lab.Eventually(t, "the hook taken again", func() bool { return e.backends[0].(*xdp.Backend).Inspect().Epochs > was })
	}
	declared := e.backends[0].(*xdp.Backend).Declaring()
	lose()
	if declared(); !gap(e) {
		t.Error("a declaration that has begun before the loss removes the note")
	}
	a := e.flows["a"]
	handle := a.handle
	a.handle = shm.Handle{}
	if e.watcher.showSources(); !gap(e) {
		t.Error("a declaration that cannot be written removes the note")
	}
	a.handle = handle
	if e.watcher.showSources(); gap(e) {
		t.Error("a declaration that was written at last does not remove the note")
	}
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

// A kill ends an instance after a move between XDP and TCX, before the mirror declares the move. The next instance declares
// the move once, even if it moves the interface back.
func TestNextInstanceDeclaresAKilledMoveOnce(t *testing.T) {
	need.TCX(t)
	for _, next := range []dataplane.Mode{dataplane.ModeTCX, dataplane.ModeNative} {
		t.Run("next "+string(next), func(t *testing.T) {
			b := refusedBench(t)
			e := b.start(t)
			lab.Eventually(t, "no gap", func() bool { return !gap(e) })

			e.ctl.Lock() // a control call delays the declaration
			err := e.backends[0].(*xdp.Backend).SetInterfaces([]dataplane.Interface{{Name: b.wire.Near.Name, Mode: dataplane.ModeTCX}})
			if err != nil {
				t.Fatal(err)
			}
			if !gap(e) {
				t.Error("the move leaves no gap")
			}
			b.kill(t, e)

			b.cfg.Interfaces[0].Mode = next
			m := newMoving(t, b, b.start(t))
			m.moves = 1
			lab.Eventually(t, "no gap", func() bool { return !gap(m.e) })
			m.exact("after the next start")
		})
	}
}

// A flow that is added needs another hook. When the call has returned, the note of that hook is removed soon.
func TestTheNoteOnAHookThatAFlowNeeds(t *testing.T) {
	need.TCX(t)
	b := refusedBench(t)
	b.cfg.XDP.KeepPins = false
	e := b.start(t)
	removed := func() bool { return !gap(e) }
	lab.Eventually(t, "the note removed after the start", removed)
	if _, err := e.AddFlows(t.Context(), flow.Flow{Name: "out", Match: match(t, "udp"), Direction: flow.Egress}); err != nil {
		t.Fatal(err)
	}
	lab.Eventually(t, "the note removed after the call", removed)
}
