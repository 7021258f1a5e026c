package engine

import (
	"math/rand/v2"

	"github.com/flowtally/flowtally/dataplane/engine/poll"
	"github.com/flowtally/flowtally/dataplane/engine/queuepair"
	"github.com/flowtally/flowtally/dataplane/engine/trial"
	"github.com/flowtally/flowtally/shm"
)

// newQueuePairs returns the queue pairs of the configuration. startQueuePairs makes them.
func newQueuePairs(e *Engine) *queuepair.Set {
	cfg := e.cfg
	cfg.Flows = nil // the set keeps cfg
	return queuepair.New(queuepair.Options{
		Config: cfg, Logger: e.log, Mirror: e.writer, Entry: e.catalogue.completionEntry, Publish: e.events.Publish,
		Refuse: refuseDevice(e.guard), Calls: e.guard.Calls(), Closed: e.closed,
	})
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

// completionEntry finds or makes the mirror's entry of a completion counter. A total of an earlier process
// goes on from its last value, with a discontinuity: completions between that value and the end of the
// process are unknown.
func (m *catalogue) completionEntry(want shm.Entry) (shm.Handle, shm.Continuity, error) {
	cookie := rand.Uint64() | 1
	return m.entry(want, nil, func(old *inherited) (shm.Continuity, error) {
		if old == nil {
			return shm.Continuity{Cookie: cookie}, nil
		}
		last := old.total
		if comp, errs, ok := m.writer.LastDevice(old.Handle); ok && comp >= last.Packets && errs >= last.Bytes {
			last.Packets, last.Bytes = comp, errs // a device went on counting after that value
		}
		return shm.Continuity{
			Cookie: cookie, BasePackets: last.Packets, BaseBytes: last.Bytes,
			Discontinuities: old.Continuity.Discontinuities + 1,
		}, old.err
	})
}
