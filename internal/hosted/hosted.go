// Package hosted tells an instance in a plugin what its host does for it.
package hosted

import (
	"context"

	"github.com/flowtally/flowtally/internal/verbpage"
)

// TrialWord is the only argument of a plugin's process that tries an RDMA device.
const TrialWord = "rdma-trial"

// Host is the supervisor of an instance. It removes what a failed start has left, so the instance itself leaves the
// pins of an earlier process alone: the next attempt adopts them.
type Host struct {
	// Restart: the host has run this instance before, in another process.
	Restart bool
	// Unconfined is the reason why the process is not kept to the files of the instance although it should be.
	Unconfined string
	// Verbs is the page in which the instance names each verb of an RDMA device before it calls it, so that the host
	// knows the verb if the process dies. A nil page names nothing.
	Verbs *verbpage.Page
	// Excluded are RDMA devices that the instance must not use, and why; "" is libibverbs itself.
	Excluded map[string]string
}

type key struct{}

// With returns a context for the start of an instance that has a host.
func With(ctx context.Context, h Host) context.Context { return context.WithValue(ctx, key{}, h) }

// From returns the host of an instance, if it has one.
func From(ctx context.Context) (h Host, is bool) {
	h, is = ctx.Value(key{}).(Host)
	return h, is
}
