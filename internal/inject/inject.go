// Package inject lets tests and benchmarks replace parts of the engine: its backends, its ticker and the allocation of space
// for the mirror. The replacements travel in the context for engine.New, so that its API does not show them.
package inject

import (
	"context"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/internal/space"
	"github.com/flowtally/flowtally/internal/tick"
)

type (
	key        struct{}
	tickerKey  struct{}
	closedKey  struct{}
	reserveKey struct{}
)

// Backends returns a context that makes engine.New use the given backends and open no others.
func Backends(ctx context.Context, backends ...backend.Backend) context.Context {
	return context.WithValue(ctx, key{}, backends)
}

// From returns the backends in a context, or nil.
func From(ctx context.Context) []backend.Backend {
	backends, _ := ctx.Value(key{}).([]backend.Backend)
	return backends
}

// Ticker returns a context that makes engine.New poll at the ticks of t.
func Ticker(ctx context.Context, t *tick.Ticker) context.Context {
	return context.WithValue(ctx, tickerKey{}, t)
}

// TickerFrom returns the ticker in a context, or nil.
func TickerFrom(ctx context.Context) *tick.Ticker {
	t, _ := ctx.Value(tickerKey{}).(*tick.Ticker)
	return t
}

// Closed returns a context with an observer for the lock of the engine. Each control call calls observe(true) when it begins
// to exclude readers, and observe(false) when it lets them in again.
func Closed(ctx context.Context, observe func(closed bool)) context.Context {
	return context.WithValue(ctx, closedKey{}, observe)
}

// ClosedFrom returns the observer in a context, or nil.
func ClosedFrom(ctx context.Context) func(closed bool) {
	observe, _ := ctx.Value(closedKey{}).(func(closed bool))
	return observe
}

// Reserve returns a context that makes engine.New allocate space for the mirror with reserve.
func Reserve(ctx context.Context, reserve space.Reserve) context.Context {
	return context.WithValue(ctx, reserveKey{}, reserve)
}

// ReserveFrom returns the function of Reserve, or nil. nil means fallocate.
func ReserveFrom(ctx context.Context) space.Reserve {
	reserve, _ := ctx.Value(reserveKey{}).(space.Reserve)
	return reserve
}
