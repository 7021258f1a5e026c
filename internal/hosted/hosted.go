// Package hosted passes information from the host of a plugin to the instance inside, through a context.
package hosted

import (
	"context"

	"github.com/flowtally/flowtally/internal/verbpage"
)

// TrialWord is the argument that makes a plugin binary test an RDMA device instead of serving.
const TrialWord = "rdma-trial"

// Host describes the host of an instance. An instance with a host must not remove pins after a failed start: the next
// attempt adopts them, and the host cleans up after the last.
type Host struct {
	// Restart is set if the host has already run this instance in an earlier process.
	Restart bool
	// Unconfined says why the process could not be confined to the files of the instance. Empty if it is, or need not be.
	Unconfined string
	// Verbs is shared memory in which the instance notes each verb of an RDMA device before the call. After a crash the
	// host reads there which verb it was. May be nil.
	Verbs *verbpage.Page
	// Excluded has the RDMA devices that the instance must not use, with the reasons. The key "" is libibverbs itself.
	Excluded map[string]string
}

type key struct{}

// With returns a context for engine.New with a host.
func With(ctx context.Context, h Host) context.Context { return context.WithValue(ctx, key{}, h) }

// From returns the host in a context, if there is one.
func From(ctx context.Context) (h Host, is bool) {
	h, is = ctx.Value(key{}).(Host)
	return h, is
}
