package engine

import (
	"github.com/flowtally/flowtally/dataplane/engine/poll"
	"github.com/flowtally/flowtally/dataplane/engine/queuepair"
	"github.com/flowtally/flowtally/dataplane/engine/trial"
	"github.com/flowtally/flowtally/dataplane/engine/words"
)

// newQueuePairs returns the queue pairs of the configuration. startQueuePairs makes them.
func newQueuePairs(e *Engine) *queuepair.Set {
	cfg := e.cfg
	cfg.Flows = nil // the set keeps cfg
	return queuepair.New(queuepair.Options{
		Config: cfg, Logger: e.log, Mirror: e.writer, Entry: e.catalogue.Completion, Publish: e.events.Publish,
		Refuse: refuseDevice(e.guard), Calls: e.guard.Calls(), Closed: e.closed,
	})
}

// newWords returns the reserved words of an instance, without any.
func newWords(e *Engine) words.Service {
	m := e.cfg.Mirror
	return words.Service{
		Set: words.New(words.Options{
			Path: m.Path, Mode: m.WordsMode, Group: m.WordsGroup, QueuePairs: e.cfg.QueuePairs, Logger: e.log, Mirror: e.writer,
			Entry: e.catalogue.Completion, Remove: e.catalogue.Remove, SetSource: e.plan.SetSource, Publish: e.events.Publish,
		}),
		Lock: e.lock, Unlock: e.ctl.Unlock, MayRead: e.mayRead,
		Taken: func(name string) bool {
			return e.flows[name] != nil || e.refused.flows[name] != nil || e.pairs.HasCounter(name)
		},
	}
}

// refuseDevice returns a function that returns why a device is not used; "" is libibverbs itself.
func refuseDevice(g *trial.Guard) func(device string) error {
	return func(device string) error {
		if device == "" {
			return g.Library()
		}
		return g.Device(trial.Request{Device: device})
	}
}

// startQueuePairs makes the queue pairs of the configuration and their counters in the mirror.
// It is called with ctl held, while the entries of an earlier process are known.
func startQueuePairs(pairs *queuepair.Set, plan *poll.Plan) error {
	if err := pairs.Start(); err != nil {
		return err
	}
	id := uint32(0)
	for h, base := range pairs.Counters() {
		plan.SetSource(h, pairs, id, base)
		id++
	}
	return nil
}
