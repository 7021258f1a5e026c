package engine

import (
	"math/rand/v2"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/queuepair"
	"github.com/flowtally/flowtally/dataplane/engine/trial"
	"github.com/flowtally/flowtally/shm"
)

// QueuePairs implements dataplane.Service.
func (e *Engine) QueuePairs() dataplane.QueuePairs { return e.pairs }

// newQueuePairs returns the queue pairs of the configuration. startQueuePairs makes them.
func (e *Engine) newQueuePairs() *queuepair.Set {
	cfg := e.cfg
	cfg.Flows = nil // it keeps cfg
	return queuepair.New(queuepair.Options{
		Config: cfg, Logger: e.log, Mirror: e.writer, Entry: e.completionEntry, Publish: e.events.publish,
		Refuse: e.refuseDevice, Calls: e.guard.Calls(), Closed: e.closed,
	})
}

func (e *Engine) refuseDevice(device string) error {
	if device == "" {
		return e.guard.Library()
	}
	return e.guard.Device(trial.Request{Device: device})
}

// startQueuePairs makes the queue pairs of the configuration and their counters in the mirror.
// It is called with ctl held, while the entries of an earlier process are known.
func (e *Engine) startQueuePairs() error {
	if err := e.pairs.Start(); err != nil {
		return err
	}
	id := uint32(0)
	for h, base := range e.pairs.Counters() {
		e.plan.SetSource(h, e.pairs, id, base)
		id++
	}
	return nil
}

// completionEntry finds or makes the mirror's entry of a completion counter. A total of an earlier process
// goes on from its last value, with a discontinuity: completions between that value and the end of the
// process are unknown.
func (e *Engine) completionEntry(want shm.Entry) (shm.Handle, shm.Continuity, error) {
	cookie := rand.Uint64() | 1
	return e.catalogue.entry(want, nil, func(old *inherited) (shm.Continuity, error) {
		if old == nil {
			return shm.Continuity{Cookie: cookie}, nil
		}
		last := old.total
		if comp, errs, ok := e.writer.LastDevice(old.Handle); ok && comp >= last.Packets && errs >= last.Bytes {
			last.Packets, last.Bytes = comp, errs // a device went on counting after that value
		}
		return shm.Continuity{
			Cookie: cookie, BasePackets: last.Packets, BaseBytes: last.Bytes,
			Discontinuities: old.Continuity.Discontinuities + 1,
		}, old.err
	})
}
