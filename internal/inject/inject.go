// Package inject hands backends of tests and benchmarks to engine.New, in place of the built-in backends.
package inject

import (
	"context"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

type key struct{}

// Backends returns a context with which engine.New opens no backend and uses these.
func Backends(ctx context.Context, backends ...backend.Backend) context.Context {
	return context.WithValue(ctx, key{}, backends)
}

// From returns the backends of a context, or nil.
func From(ctx context.Context) []backend.Backend {
	backends, _ := ctx.Value(key{}).([]backend.Backend)
	return backends
}
