// Package inject hands backends and a ticker of tests and benchmarks to engine.New, in place of the built-in ones.
package inject

import (
	"context"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/internal/tick"
)

type (
	key       struct{}
	tickerKey struct{}
)

// Backends returns a context with which engine.New opens no backend and uses these.
func Backends(ctx context.Context, backends ...backend.Backend) context.Context {
	return context.WithValue(ctx, key{}, backends)
}

// From returns the backends of a context, or nil.
func From(ctx context.Context) []backend.Backend {
	backends, _ := ctx.Value(key{}).([]backend.Backend)
	return backends
}

// Ticker returns a context with which engine.New polls at the ticks of t.
func Ticker(ctx context.Context, t *tick.Ticker) context.Context {
	return context.WithValue(ctx, tickerKey{}, t)
}

// TickerFrom returns the ticker of a context, or nil.
func TickerFrom(ctx context.Context) *tick.Ticker {
	t, _ := ctx.Value(tickerKey{}).(*tick.Ticker)
	return t
}
