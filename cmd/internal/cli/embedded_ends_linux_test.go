package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/configs"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/lab/times"
	"github.com/flowtally/flowtally/plugin"
)

// starter starts an instance in this process, as a program that embeds one does.
type starter func(ctx context.Context, cfg dataplane.Config, log *slog.Logger) (dataplane.Service, error)

// starters are the two ways to embed an instance.
func (in *instance) starters() map[string]starter {
	return map[string]starter{
		"engine.New": func(ctx context.Context, cfg dataplane.Config, log *slog.Logger) (dataplane.Service, error) {
			e, err := engine.New(ctx, cfg, engine.Options{Logger: log})
			if err != nil {
				return nil, err
			}
			return e, nil
		},
		"plugin.Launch": func(ctx context.Context, cfg dataplane.Config, log *slog.Logger) (dataplane.Service, error) {
			c, err := plugin.Launch(ctx, plugin.Options{Path: filepath.Join(in.bin, "flowtally-plugin"), Config: cfg, Logger: log})
			if err != nil {
				return nil, err
			}
			return c, nil
		},
	}
}

// spoken is the log of an embedding program. It records each message, and calls act at the message for which it waits.
type spoken struct {
	slog.Handler
	mu       sync.Mutex
	messages []string
	awaited  string
	act      func()
}

func (s *spoken) Enabled(context.Context, slog.Level) bool { return true }

func (s *spoken) Handle(_ context.Context, r slog.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.messages, r.Message) {
		s.messages = append(s.messages, r.Message)
		if r.Message == s.awaited {
			s.act()
		}
	}
	return nil
}

func (s *spoken) WithAttrs([]slog.Attr) slog.Handler { return s }
func (s *spoken) WithGroup(string) slog.Handler      { return s }

// embed starts the instance, closes it if it has started, and checks that nothing is left of it. It reports whether the
// end of the context ended the start.
func (in *instance) embed(what string, start starter, cfg dataplane.Config, log *spoken, end func() (context.Context, func())) (ended bool) {
	in.t.Helper()
	in.forget()
	ctx, done := end()
	defer done()
	err := in.wire.Near.NS.Do(func() error {
		svc, err := start(ctx, cfg, slog.New(log))
		if err == nil {
			return svc.Close()
		}
		if ctx.Err() == nil || !errors.Is(err, context.Canceled) {
			return err
		}
		ended = true
		if exists(in.mirror) {
			return fmt.Errorf("the mirror is left of a start that ended with %w", err)
		}
		return nil
	})
	if err != nil {
		in.t.Errorf("%s: %v", what, err)
	}
	if n := in.programs(); n != 0 {
		in.t.Errorf("%s: %d programs are attached", what, n)
	}
	if exists(in.pins) {
		in.t.Errorf("%s: %v are pinned in %s", what, in.pinned(), in.pins)
	}
	return ended
}

// The program cancels the context of engine.New or plugin.Launch, or gets SIGTERM as in docs/embedding.md. It does so
// at each message of the start and at random instants.
func TestEmbeddingProgramThatEndsAStartLeavesNothing(t *testing.T) {
	instants, flows := times.Brief(12, 4), times.Brief(1_000, 300)
	if os.Getenv("FLOWTALLY_STRESS") != "" {
		instants, flows = 200, 20_000
	}
	in := newInstance(t, "")
	in.crowd(flows, 2, "")
	cfg, err := configs.Load(filepath.Join(in.dir, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	// A signal that arrives when the start has ended is not to end the test.
	late := make(chan os.Signal, 1)
	signal.Notify(late, syscall.SIGTERM)
	defer signal.Stop(late)
	terminate := func() { _ = syscall.Kill(os.Getpid(), syscall.SIGTERM) }
	for way, start := range in.starters() {
		t.Run(way, func(t *testing.T) {
			in.t = t
			r := seed.Rand(t)
			alone := func() (context.Context, func()) { return t.Context(), func() {} }
			in.embed("first", start, cfg, &spoken{}, alone) // says once that it removes what an earlier test has left
			undisturbed := &spoken{}
			began := time.Now()
			in.embed("undisturbed", start, cfg, undisturbed, alone)
			took := time.Since(began)
			t.Logf("a start and a stop take %v and say %q", took, undisturbed.messages)

			for _, m := range undisturbed.messages {
				cancelled := &spoken{awaited: m}
				ended := in.embed("cancelled at "+m, start, cfg, cancelled, func() (context.Context, func()) {
					ctx, cancel := context.WithCancel(t.Context())
					cancelled.act = cancel
					return ctx, cancel
				})
				if !ended && way == "engine.New" { // a plugin's log may arrive after the start
					t.Errorf("cancelled at %s: the start went on to its end", m)
				}
				terminated := &spoken{awaited: m, act: terminate}
				in.embed("SIGTERM at "+m, start, cfg, terminated, func() (context.Context, func()) {
					return signal.NotifyContext(t.Context(), syscall.SIGTERM)
				})
			}
			for range instants / len(in.starters()) {
				after := time.Duration(r.Int64N(int64(took)))
				in.embed(fmt.Sprint("cancelled after ", after), start, cfg, &spoken{}, func() (context.Context, func()) {
					ctx, cancel := context.WithCancel(t.Context())
					timer := time.AfterFunc(after, cancel)
					return ctx, func() { timer.Stop(); cancel() }
				})
			}
		})
	}
}
