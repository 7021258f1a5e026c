// Package hosted tells an instance in a plugin what its host does for it.
package hosted

import "context"

// Host is the supervisor of an instance. It removes what a failed start has left, so the instance itself leaves the
// pins of an earlier process alone: the next attempt adopts them.
type Host struct {
	// Restart: the host has run this instance before, in another process.
	Restart bool
	// Socket is the directory of the plugin's socket, which the plugin removes at its end; "" for none.
	Socket string
}

type key struct{}

// With returns a context for the start of an instance that has a host.
func With(ctx context.Context, h Host) context.Context { return context.WithValue(ctx, key{}, h) }

// From returns the host of an instance, if it has one.
func From(ctx context.Context) (h Host, is bool) {
	h, is = ctx.Value(key{}).(Host)
	return h, is
}
