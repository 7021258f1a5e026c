// Package inject hands things of tests and benchmarks to engine.New: backends and a ticker in place of the built-in ones, an
// observer of its lock, and what reserves the space of the mirror.
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

// Closed returns a context with which engine.New gives its lock an observer. A control call tells observe, in its goroutine, when
// it begins to keep readers out, and when it lets them in again.
func Closed(ctx context.Context, observe func(closed bool)) context.Context {
	return context.WithValue(ctx, closedKey{}, observe)
}

// ClosedFrom returns the observer of a context, or nil.
func ClosedFrom(ctx context.Context) func(closed bool) {
	observe, _ := ctx.Value(closedKey{}).(func(closed bool))
	return observe
}

// Reserve returns a context with which engine.New reserves the space of the mirror by reserve.
func Reserve(ctx context.Context, reserve space.Reserve) context.Context {
	return context.WithValue(ctx, reserveKey{}, reserve)
}

// ReserveFrom returns what reserves the space of the mirror, or nil, for fallocate.
func ReserveFrom(ctx context.Context) space.Reserve {
	reserve, _ := ctx.Value(reserveKey{}).(space.Reserve)
	return reserve
}
