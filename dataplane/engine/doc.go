// Package engine is the instance itself: it places flows on backends, polls
// their counters and publishes them in the mirror. It runs in the plugin's
// process, or embedded in any program that is privileged itself.
//
// # A count
//
// The poller reads every counter once a cycle ([Backend.Read]), adds the base
// that the counter carries over from earlier sources, and publishes whole
// blocks through shm.Writer. That path takes one lock that no reader holds,
// allocates nothing and knows no name.
//
// # A flow
//
// Engine.AddFlows validates, finds or makes the counter's entry in the mirror,
// asks the backends in order and keeps each refusal, then settles the
// continuity of the total: an entry whose cookie still names the counter that
// the backend gave goes on from its base; any other goes on from the last
// published total, with one discontinuity.
//
// # Locks and goroutines
//
// Control methods (all of dataplane.Service) may be called from any goroutine
// and are serialised by Engine.ctl. The poller's goroutine and a control call
// that changes what is polled meet at Engine.plan.mu, held for one cycle or for
// one change of the plan, never across a call into the kernel that may sleep.
package engine
