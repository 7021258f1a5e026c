package engine

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/inject"
	"github.com/flowtally/flowtally/internal/lab"
)

// losing is XDP that loses a hook as soon as flows have their slots.
type losing struct {
	*xdp.Backend
	lose func(retaken bool)
}

func (l *losing) Install(ctx context.Context, flows []backend.Placed) ([]backend.Installed, error) {
	defer l.lose(true)
	return l.Backend.Install(ctx, flows)
}

func (l *losing) AddShadows(ctx context.Context, flows []backend.Placed) ([]backend.Installed, error) {
	defer l.lose(false) // no flow needs it yet
	return l.Backend.AddShadows(ctx, flows)
}

// A start finds the slot of a flow, and has not published the flow yet when another program takes the hook for a while. The
// total goes on from its last value, with one discontinuity, whatever counts the flow then.
func TestAHookThatIsLostWithinAStartIsOneDiscontinuity(t *testing.T) {
	no := func(flow.Flow) error { return errors.New("no spec looks at it") }
	for name, over := range map[string]*fakeHardware{
		"XDP alone": nil, "XDP beside hardware": {table: newTable(), cannot: no}, "hardware": newFakeHardware(true),
	} {
		t.Run(name, func(t *testing.T) {
			b := refusedBench(t)
			frames := lab.Stream{Frames: [][]byte{udpTo(1001, 60)}}
			e := b.start(t)
			sent := backend.Pair(b.send(t, 1000, frames)[0])
			await(t, reader(t, b.cfg), "a", sent)
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			b.cfg.Backend, b.cfg.XDP.KeepPins = "auto", false
			err := b.wire.Near.NS.Do(func() error {
				x, err := xdp.New(xdp.Options{
					Interfaces: b.cfg.Interfaces, Degraded: true, Config: b.cfg.XDP, Flows: b.cfg.Flows, Logger: slog.New(slog.DiscardHandler), Early: []string{},
				})
				if err != nil {
					return err
				}
				all := []backend.Backend{&losing{x, func(retaken bool) {
					was, foreign := x.Now(), takeHook(t, b.cfg.XDP.PinDir, b.wire.Near)
					b.send(t, 500, frames) // nothing counts them
					if err := foreign.Close(); err != nil {
						t.Error(err)
					}
					lab.Eventually(t, "the hook taken again", func() bool {
						x.CheckAll()
						return !retaken || x.Now() > was
					})
				}}}
				if over != nil {
					all = append([]backend.Backend{over}, all...)
				}
				e, err = New(inject.Backends(context.Background(), all...), b.cfg, Options{})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			endWith(t, e)
			e.ctl.Lock()
			defer e.ctl.Unlock()
			e.watcher.showSources() // which finds nothing new
			if n := e.flows["a"].past.Discontinuities; n != 1 {
				t.Errorf("%d discontinuities, want 1", n)
			}
			e.poller.Poll()
			if v, err := e.writer.Last(e.flows["a"].handle); err != nil || v.Packets != sent.Packets {
				t.Errorf("%+v, %v, want %d packets", v, err, sent.Packets)
			}
		})
	}
}
